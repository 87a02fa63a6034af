# SPDX-License-Identifier: Apache-2.0
#
# libterrazzo_torch.so: the hooks for PyTorch. It needs no PyTorch to be built, but a C++ compiler, since PyTorch's
# failures are C++ exceptions and its pool hook is given a std::function. What needs headers of PyTorch (shim.cpp, with
# every shim_*.cpp) or Python (python_frames.c) is compiled by python/terrazzo when it is first used.

include(CheckLanguage)
check_language(CXX)
if(NOT CMAKE_CXX_COMPILER)
	message(STATUS "No C++ compiler: libterrazzo_torch.so is not built")
	return()
endif()
enable_language(CXX)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)

trz_sources(torch_sources plug/torch/plug*.c plug/torch/plug*.cpp)
add_library(terrazzo_torch SHARED ${torch_sources})
set_source_files_properties(plug/torch/plug_throw_older.cpp PROPERTIES
	COMPILE_DEFINITIONS _GLIBCXX_USE_CXX11_ABI=0)
target_include_directories(terrazzo_torch PRIVATE plug/torch)
target_compile_options(terrazzo_torch PRIVATE -fexceptions)
target_link_libraries(terrazzo_torch PRIVATE trz_events trz_sites terrazzo Threads::Threads ${CMAKE_DL_LIBS})
set(torch_map "${PROJECT_SOURCE_DIR}/cmake/terrazzo_torch.map")
target_link_options(terrazzo_torch PRIVATE "LINKER:--version-script=${torch_map}" LINKER:-z,nodelete)
set_target_properties(terrazzo_torch PROPERTIES
	LINKER_LANGUAGE CXX
	BUILD_RPATH "$ORIGIN"
	INSTALL_RPATH "$ORIGIN"
	LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

# ---- the package: beside the library, in a build tree through a link, in a wheel in one folder -------------------

if(NOT EXISTS "${PROJECT_BINARY_DIR}/share/terrazzo/python")
	file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/share/terrazzo")
	file(CREATE_LINK "${PROJECT_SOURCE_DIR}/python" "${PROJECT_BINARY_DIR}/share/terrazzo/python" SYMBOLIC)
endif()
if(NOT TRZ_INSTALL)
	return()
endif()
trz_sources(shim_files plug/torch/shim*.cpp plug/torch/shim*.hpp plug/torch/plug_pools.hpp
	plug/torch/terrazzo_torch.h)
if(SKBUILD)
	install(TARGETS terrazzo_torch LIBRARY DESTINATION terrazzo/lib COMPONENT python)
	install(FILES ${shim_files} DESTINATION terrazzo/src COMPONENT python)
	install(DIRECTORY plug/torch/cuda DESTINATION terrazzo/src COMPONENT python)
	install(FILES python/terrazzo.pth DESTINATION . COMPONENT python)
else()
	install(TARGETS terrazzo_torch)
	install(DIRECTORY python/terrazzo/torch DESTINATION ${CMAKE_INSTALL_DATADIR}/terrazzo/python/terrazzo
		PATTERN __pycache__ EXCLUDE)
	install(FILES ${shim_files} DESTINATION ${CMAKE_INSTALL_DATADIR}/terrazzo/python/terrazzo/src)
	install(DIRECTORY plug/torch/cuda DESTINATION ${CMAKE_INSTALL_DATADIR}/terrazzo/python/terrazzo/src)
endif()
