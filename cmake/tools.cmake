# SPDX-License-Identifier: Apache-2.0
#
# All beside the library: plugs, simulated device, traces, command, benches. Who embeds the library needs none of it,
# nor what it needs.

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
find_package(PkgConfig REQUIRED)
pkg_check_modules(lzma REQUIRED IMPORTED_TARGET liblzma)
pkg_check_modules(zlib REQUIRED IMPORTED_TARGET zlib)
pkg_check_modules(zstd REQUIRED IMPORTED_TARGET libzstd)
pkg_check_modules(lz4 REQUIRED IMPORTED_TARGET liblz4)
pkg_check_modules(jansson REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(inih REQUIRED IMPORTED_TARGET inih)

# ---- plugs: what other programs load ---------------------------------------------------------------------

# What plugs share: the program's own events, as the heaps want them, and the stacks of those who allocate.
trz_layer(trz_events plug/events)
trz_layer(trz_sites plug/sites)
include(cmake/plug_torch.cmake)
include(cmake/plug_native.cmake)

# ---- simulated device, traces, command line --------------------------------------------------------------

add_library(trz_core STATIC $<TARGET_OBJECTS:trz_objects>)
target_include_directories(trz_core PUBLIC stats explain alloc)
target_compile_definitions(trz_core PUBLIC $<TARGET_PROPERTY:trz_objects,INTERFACE_COMPILE_DEFINITIONS>)
target_link_libraries(trz_core PUBLIC trz_base $<TARGET_NAME_IF_EXISTS:trz_jemalloc>)

trz_layer(trz_sim sim PkgConfig::inih)
trz_sources(cost_tables sim/costs/*.ini)
set_source_files_properties(sim/sim_cost.c PROPERTIES OBJECT_DEPENDS "${cost_tables}")  # .incbin
set_source_files_properties(sim/sim_profile.c PROPERTIES OBJECT_DEPENDS "${PROJECT_SOURCE_DIR}/sim/profiles.ini")
trz_layer(trz_trace trace trz_sim trz_core PkgConfig::lzma PkgConfig::zlib PkgConfig::zstd PkgConfig::jansson)
# Reads the device code that a program brings along.
trz_layer(trz_fatbin lookalike/fatbin trz_core PkgConfig::lz4 PkgConfig::zstd)
include(cmake/lookalike.cmake)
set(everything trz_trace trz_sim trz_core PkgConfig::jansson)

trz_sources(cli_sources cli/*.c)
trz_sources(page_parts cli/page.html cli/page.css cli/page.js)
set_source_files_properties(cli/page_write.c PROPERTIES OBJECT_DEPENDS "${page_parts}")  # .incbin
if(cli_sources)
	add_executable(terrazzo_cli ${cli_sources})
	set_target_properties(terrazzo_cli PROPERTIES
		OUTPUT_NAME terrazzo
		RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
	target_include_directories(terrazzo_cli PRIVATE "${PROJECT_SOURCE_DIR}/cli")  # of .incbin, too
	target_link_libraries(terrazzo_cli PRIVATE ${everything} PkgConfig::zlib)
	# Where it finds the look-alikes once installed, and its Python part in the build tree.
	file(RELATIVE_PATH installed_sim "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}/terrazzo/sim")
	file(RELATIVE_PATH installed_lib "${CMAKE_INSTALL_FULL_BINDIR}" "${CMAKE_INSTALL_FULL_LIBDIR}")
	target_compile_definitions(terrazzo_cli PRIVATE "TRZ_INSTALLED_SIM=\"${installed_sim}\""
		"TRZ_INSTALLED_LIB=\"${installed_lib}\"")
	file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/share/terrazzo")
	file(CREATE_LINK "${PROJECT_SOURCE_DIR}/python" "${PROJECT_BINARY_DIR}/share/terrazzo/python" SYMBOLIC)
endif()

include(cmake/plotly.cmake)

# Man pages of the public headers. SOURCE_DATE_EPOCH is their date, if it is set.
trz_sources(public_headers include/*.h)
set(man_dir "${PROJECT_BINARY_DIR}/share/man/man3")
string(TIMESTAMP man_date "%Y-%m-%d" UTC)
add_custom_command(OUTPUT "${man_dir}/terrazzo.3"
	COMMAND "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/gen_man.py" --version ${PROJECT_VERSION}
		--date ${man_date} "${man_dir}" ${public_headers}
	DEPENDS ${public_headers} "${PROJECT_SOURCE_DIR}/tools/gen_man.py"
	VERBATIM)
add_custom_target(trz_man ALL DEPENDS "${man_dir}/terrazzo.3")

set(TRZ_ENVIRONMENT
	"TERRAZZO_CLI=${PROJECT_BINARY_DIR}/bin/terrazzo"
	"TERRAZZO_LIB=${PROJECT_BINARY_DIR}/lib/libterrazzo.so"
	"TRZ_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
	"TRZ_BUILD_DIR=${PROJECT_BINARY_DIR}"
	"TRZ_LOOKALIKE_DIR=${PROJECT_BINARY_DIR}/lib/sim"
	"PYTHONDONTWRITEBYTECODE=1")

# ---- benches: bench/<name>.c and bench/<name>.py become <build>/bench/<name> -----------------------------

trz_sources(bench_programs bench/*.c)
foreach(file IN LISTS bench_programs)
	cmake_path(GET file STEM name)
	add_executable(bench_${name} ${file})
	set_target_properties(bench_${name} PROPERTIES
		OUTPUT_NAME ${name}
		RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
	target_link_libraries(bench_${name} PRIVATE ${everything})
endforeach()
target_link_libraries(bench_native PRIVATE terrazzo_cuda trz_lookalike_driver)
# What measures a GPU; it loads the driver library that it finds.
trz_sources(figures_sources bench/gpu/figures/*.c)
add_executable(bench_device_figures ${figures_sources})
set_target_properties(bench_device_figures PROPERTIES
	OUTPUT_NAME device_figures
	RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
target_include_directories(bench_device_figures PRIVATE bench/gpu/figures)  # of .incbin, too
target_link_libraries(bench_device_figures PRIVATE trz_core m ${CMAKE_DL_LIBS})
set_source_files_properties(bench/gpu/figures/gpu.c PROPERTIES
	OBJECT_DEPENDS "${PROJECT_SOURCE_DIR}/bench/gpu/figures/kernels.ptx")
trz_sources(bench_scripts bench/*.py)
foreach(file IN LISTS bench_scripts)
	trz_script(${file} "${PROJECT_BINARY_DIR}/bench")
endforeach()
# Allocators on a real GPU (bench/README.md); it looks its driver up itself, so that nothing but the environment
# decides which one that is.
add_executable(bench_gpu_replay bench/gpu/gpu_replay.c bench/gpu/gpu_count.c)
set_target_properties(bench_gpu_replay PROPERTIES OUTPUT_NAME gpu_replay
	RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bench")
target_link_libraries(bench_gpu_replay PRIVATE ${everything})
if(NOT TRZ_SANITIZE)
	include(cmake/bench_peers.cmake)
endif()
