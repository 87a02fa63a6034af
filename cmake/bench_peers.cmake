# SPDX-License-Identifier: Apache-2.0
#
# What `make bench` runs allocators in (bench/README.md): <build>/bench/harness, over a CUDA driver and runtimes that
# note how long calls take, in <build>/bench/sim.

set(bench_sim_dir "${PROJECT_BINARY_DIR}/bench/sim")

# bench_clocked(NAME FILE...): objects that report where each function begins and ends.
function(bench_clocked name)
	add_library(${name} OBJECT ${ARGN})
	set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
	target_compile_options(${name} PRIVATE -finstrument-functions)
	target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
	target_link_libraries(${name} PRIVATE trz_base trz_sim trz_fatbin trz_core PkgConfig::jansson)
endfunction()

trz_sources(bench_driver_sources lookalike/driver/*.c)
bench_clocked(bench_driver ${bench_driver_sources})
trz_sources(bench_harness_sources bench/harness/*.c)
list(REMOVE_ITEM bench_harness_sources "${PROJECT_SOURCE_DIR}/bench/harness/bench_main.c")
add_library(bench_cuda SHARED ${bench_harness_sources} $<TARGET_OBJECTS:bench_driver>)
target_include_directories(bench_cuda PRIVATE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/lookalike")
target_link_libraries(bench_cuda PRIVATE trz_trace trz_sim trz_fatbin trz_core PkgConfig::jansson)
target_link_options(bench_cuda PRIVATE LINKER:-soname,libcuda.so.1 LINKER:--exclude-libs,ALL
	LINKER:-Bsymbolic-functions LINKER:-z,nodelete)
set_target_properties(bench_cuda PROPERTIES PREFIX "" OUTPUT_NAME libcuda SUFFIX .so.1 NO_SONAME ON
	LIBRARY_OUTPUT_DIRECTORY "${bench_sim_dir}" BUILD_RPATH "$ORIGIN")

trz_sources(bench_runtime_sources lookalike/runtime/*.c)
foreach(major 12 13)
	bench_clocked(bench_runtime${major} ${bench_runtime_sources})
	target_compile_definitions(bench_runtime${major} PRIVATE RUNTIME_MAJOR=${major})
	add_library(bench_cudart${major} SHARED $<TARGET_OBJECTS:bench_runtime${major}>)
	target_link_libraries(bench_cudart${major} PRIVATE bench_cuda trz_base)
	target_link_options(bench_cudart${major} PRIVATE LINKER:-soname,libcudart.so.${major} LINKER:--exclude-libs,ALL
		"LINKER:--version-script=${PROJECT_BINARY_DIR}/libcudart.so.${major}.map" LINKER:-z,nodelete)
	set_target_properties(bench_cudart${major} PROPERTIES PREFIX "" OUTPUT_NAME libcudart SUFFIX .so.${major}
		NO_SONAME ON LIBRARY_OUTPUT_DIRECTORY "${bench_sim_dir}" BUILD_RPATH "$ORIGIN")
endforeach()

add_executable(bench_harness_program bench/harness/bench_main.c)
target_link_libraries(bench_harness_program PRIVATE bench_cuda)
set_target_properties(bench_harness_program PROPERTIES OUTPUT_NAME harness
	RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench" BUILD_RPATH "$ORIGIN/sim")
