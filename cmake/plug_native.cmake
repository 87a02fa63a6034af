# SPDX-License-Identifier: Apache-2.0
#
# For native programs: libterrazzo_cuda, which they link.

# What both faces share: the heaps of the process, and CUDA's calls over them.
trz_sources(native_sources plug/native/native_driver.c plug/native/native_heaps.c plug/native/native_memory.c
	plug/native/native_options.c)

add_library(terrazzo_cuda SHARED ${native_sources} plug/native/native_link.c plug/native/cuda_api.c)
set(cuda_map "${PROJECT_SOURCE_DIR}/cmake/terrazzo_cuda.map")
target_include_directories(terrazzo_cuda PRIVATE "${PROJECT_SOURCE_DIR}" plug/native)
target_link_libraries(terrazzo_cuda PUBLIC terrazzo PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(terrazzo_cuda PRIVATE "LINKER:--version-script=${cuda_map}" LINKER:-z,nodelete)
set_target_properties(terrazzo_cuda PROPERTIES
	VERSION ${PROJECT_VERSION}
	SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
	LINK_DEPENDS "${cuda_map}"
	BUILD_RPATH "$ORIGIN"
	INSTALL_RPATH "$ORIGIN"
	LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
trz_public(terrazzo_cuda cuda)
