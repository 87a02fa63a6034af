# SPDX-License-Identifier: Apache-2.0
#
# For native programs: libterrazzo_cuda, which they link, and libterrazzo_preload, which stands before the driver.

# What both faces share: the heaps of the process, and CUDA's calls over them.
trz_sources(native_sources plug/native/native_driver.c plug/native/native_guard.c plug/native/native_heaps.c
	plug/native/native_late.c plug/native/native_memory.c plug/native/native_options.c plug/native/native_pools.c)

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

# Programs that are linked with libterrazzo_cuda, too, use the functions here: one set of heaps for both.
trz_sources(preload_sources plug/native/preload*.c plug/native/limit*.c)
add_library(terrazzo_preload SHARED ${native_sources} ${preload_sources} plug/native/cuda_api.c)
set(preload_map "${PROJECT_SOURCE_DIR}/cmake/terrazzo_preload.map")
target_include_directories(terrazzo_preload PRIVATE "${PROJECT_SOURCE_DIR}" plug/native)
target_compile_options(terrazzo_preload PRIVATE -ftls-model=initial-exec)
target_link_libraries(terrazzo_preload PRIVATE trz_events terrazzo Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(terrazzo_preload PRIVATE "LINKER:--version-script=${preload_map}" LINKER:-z,nodelete
	LINKER:-Bsymbolic-functions)
set_target_properties(terrazzo_preload PROPERTIES
	LINK_DEPENDS "${preload_map}"
	BUILD_RPATH "$ORIGIN"
	INSTALL_RPATH "$ORIGIN"
	LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
