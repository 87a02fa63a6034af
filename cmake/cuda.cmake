# SPDX-License-Identifier: Apache-2.0
#
# For native programs that are linked with it: libterrazzo_cuda, shared and static.

# What this shares with libterrazzo_preload (plug_native.cmake): the heaps of the process, and CUDA's calls over them.
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

# As libterrazzo.a, one object whose only global names are public.
add_library(trz_cuda_objects OBJECT ${native_sources} plug/native/native_link.c plug/native/cuda_api.c)
target_include_directories(trz_cuda_objects PRIVATE "${PROJECT_SOURCE_DIR}" plug/native)
target_link_libraries(trz_cuda_objects PRIVATE trz_base)
set(cuda_relocatable "${PROJECT_BINARY_DIR}/terrazzo_cuda_static.o")
add_custom_command(OUTPUT "${cuda_relocatable}"
	COMMAND ${CMAKE_LINKER} -r -o "${cuda_relocatable}" $<TARGET_OBJECTS:trz_cuda_objects>
	COMMAND ${CMAKE_OBJCOPY} --localize-hidden "${cuda_relocatable}"
	DEPENDS $<TARGET_OBJECTS:trz_cuda_objects>
	COMMAND_EXPAND_LISTS VERBATIM)
add_library(terrazzo_cuda_static STATIC "${cuda_relocatable}")
set_source_files_properties("${cuda_relocatable}" PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
set_target_properties(terrazzo_cuda_static PROPERTIES
	OUTPUT_NAME terrazzo_cuda
	LINKER_LANGUAGE C
	ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
add_dependencies(terrazzo_cuda_static trz_cuda_objects)
target_link_libraries(terrazzo_cuda_static INTERFACE terrazzo_static)
trz_public(terrazzo_cuda_static cuda_static)
