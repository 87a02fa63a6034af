# SPDX-License-Identifier: Apache-2.0
#
# tests/native/programs/<name>.c becomes <build>/tests/native/programs/<name>, a program of CUDA.

# trz_native(NAME FILE LIBRARY...)
function(trz_native name file)
	add_executable(native_${name} ${file})
	set_target_properties(native_${name} PROPERTIES
		OUTPUT_NAME ${name}
		RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/native/programs")
	target_include_directories(native_${name} PRIVATE include)
	target_link_libraries(native_${name} PRIVATE ${ARGN} trz_lookalike_driver Threads::Threads ${CMAKE_DL_LIBS})
endfunction()

trz_sources(native_programs tests/native/programs/*.c)
foreach(file IN LISTS native_programs)
	cmake_path(GET file STEM name)
	trz_native(${name} ${file} trz_lookalike_runtime13)
endforeach()
target_link_libraries(native_linked PRIVATE terrazzo_cuda)

# A library that calls back into the program that opens it.
add_library(native_constructed MODULE tests/native/libraries/constructed.c)
set_target_properties(native_constructed PROPERTIES
	PREFIX ""
	OUTPUT_NAME constructed
	LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/native/programs")
set_target_properties(native_constructors PROPERTIES ENABLE_EXPORTS ON)
add_dependencies(native_constructors native_constructed)

# The same with the runtime's other versions, and with a static one.
trz_native(runtime11 "${PROJECT_SOURCE_DIR}/tests/native/programs/runtime_calls.c" trz_lookalike_runtime11)
trz_native(runtime12 "${PROJECT_SOURCE_DIR}/tests/native/programs/runtime_calls.c" trz_lookalike_runtime12)
trz_native(runtime_static "${PROJECT_SOURCE_DIR}/tests/native/programs/runtime_calls.c" trz_lookalike_runtime_static)
trz_native(refused_static "${PROJECT_SOURCE_DIR}/tests/native/programs/refused.c" trz_lookalike_runtime_static)
trz_native(refused_stripped "${PROJECT_SOURCE_DIR}/tests/native/programs/refused.c" trz_lookalike_runtime_static)
target_link_options(native_refused_stripped PRIVATE -s)
trz_native(exports_static "${PROJECT_SOURCE_DIR}/tests/native/programs/exports.c" trz_lookalike_runtime_static)

# What CUDA documents of its allocation calls, asked of the libraries that the program finds.
trz_sources(conformance_sources tests/native/conformance/*.c)
trz_native(conformance "${conformance_sources}" trz_lookalike_runtime13)
trz_native(conformance12 "${conformance_sources}" trz_lookalike_runtime12)
