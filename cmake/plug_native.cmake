# SPDX-License-Identifier: Apache-2.0
#
# For native programs that cannot be rebuilt: libterrazzo_preload, which stands before the driver.

# Programs that are linked with libterrazzo_cuda, too, use the functions here: one set of heaps for both.
trz_sources(preload_sources plug/native/preload*.c plug/native/limit*.c)
add_library(terrazzo_preload SHARED ${native_sources} ${preload_sources} plug/native/cuda_api.c)
set(preload_map "${PROJECT_SOURCE_DIR}/cmake/terrazzo_preload.map")
target_include_directories(terrazzo_preload PRIVATE "${PROJECT_SOURCE_DIR}" plug/native)
target_compile_options(terrazzo_preload PRIVATE -ftls-model=initial-exec)
target_link_libraries(terrazzo_preload PRIVATE trz_events trz_sites terrazzo Threads::Threads ${CMAKE_DL_LIBS})
target_link_options(terrazzo_preload PRIVATE "LINKER:--version-script=${preload_map}" LINKER:-z,nodelete
	LINKER:-Bsymbolic-functions)
set_target_properties(terrazzo_preload PROPERTIES
	LINK_DEPENDS "${preload_map}"
	BUILD_RPATH "$ORIGIN"
	INSTALL_RPATH "$ORIGIN"
	LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
