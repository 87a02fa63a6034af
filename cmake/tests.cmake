# SPDX-License-Identifier: Apache-2.0
#
# Tests by folder, which is also their ctest label. In tests/<folder>/
#   test_<name>.c     a cmocka program, linked with the allocator's internals, simulator and traces
#   test_<name>.py    a Python 3 program (standard library only)
#   fuzz_<name>.c     a fuzz harness; ctest replays tests/fuzz/corpus/<name>/ through it
#   test_<name>.cpp   in plug/ alone: a program of libterrazzo_torch.so, where there is a C++ compiler
#   any other .c      helpers that all programs of the folder share (gpu/ shares those of contract/)
# tests/native/programs/ are programs of CUDA, which know nothing of the tree but the public headers.
# tests/common/ is shared by all folders, tests/nvtx/ makes a tool that NVTX injects, tests/plug/ objects to load.

pkg_check_modules(cmocka REQUIRED IMPORTED_TARGET cmocka)
# From 2.0 on it deprecates assert_in_range for names that older ones do not have.
target_compile_options(PkgConfig::cmocka INTERFACE -Wno-deprecated-declarations)

# Folders whose tests may say "not on this machine" by exit code 77.
set(skip_folders gpu contract abi cxx lookalike native nvtx gdb)
# Folders that look at the products as they are shipped: meaningless in a sanitizer build.
set(plain_folders abi bench cxx gdb install native plug simcli tidy)

# What takes half a minute and more starts first, so that no core idles at the end.
set(long_tests sim/seeds sim/planted_order install/embed install/install fault/fault native/preload bench/contest)

set(TEST_ENVIRONMENT ${TRZ_ENVIRONMENT}
	"ASAN_OPTIONS=detect_leaks=1:abort_on_error=1"
	"UBSAN_OPTIONS=print_stacktrace=1"
	"TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1")

function(trz_register name folder)
	add_test(NAME ${folder}/${name} COMMAND ${ARGN} WORKING_DIRECTORY "${PROJECT_BINARY_DIR}")
	set(environment ${TEST_ENVIRONMENT})
	if(folder STREQUAL "nvtx")
		list(APPEND environment "NVTX_INJECTION64_PATH=${PROJECT_BINARY_DIR}/tests/nvtx/libfakenvtx.so")
	endif()
	set_tests_properties(${folder}/${name} PROPERTIES
		LABELS ${folder}
		TIMEOUT 1200
		ENVIRONMENT "${environment}"
		ENVIRONMENT_MODIFICATION "TERRAZZO_CONF=unset:")
	if("${folder}/${name}" IN_LIST long_tests)
		set_tests_properties(${folder}/${name} PROPERTIES COST 100)
	endif()
	if(folder IN_LIST skip_folders)
		set_tests_properties(${folder}/${name} PROPERTIES SKIP_RETURN_CODE 77)
	endif()
endfunction()

function(trz_program name folder file)
	add_executable(${name} ${file})
	set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/${folder}")
	target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/tests/${folder}")
	target_link_libraries(${name} PRIVATE ${ARGN} trz_testing ${everything} PkgConfig::cmocka)
endfunction()

trz_sources(common_sources tests/common/*.c)
add_library(trz_testing INTERFACE)
target_link_libraries(trz_testing INTERFACE trz_fatbin m)
target_include_directories(trz_testing INTERFACE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/tests/common")
if(common_sources)
	add_library(trz_common STATIC ${common_sources})
	target_include_directories(trz_common PRIVATE "${PROJECT_SOURCE_DIR}")
	target_link_libraries(trz_common PUBLIC ${everything} PkgConfig::cmocka)
	target_link_libraries(trz_testing INTERFACE trz_common)
endif()

file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE "${PROJECT_SOURCE_DIR}/tests" tests/*)
list(REMOVE_ITEM folders common torch)  # torch/ has a runner of its own, tests/torch/run.py
foreach(folder IN LISTS folders)
	if(TRZ_SANITIZE AND folder IN_LIST plain_folders)
		continue()
	endif()
	trz_sources(programs tests/${folder}/test_*.c)
	trz_sources(harnesses tests/${folder}/fuzz_*.c)
	trz_sources(helpers tests/${folder}/*.c)
	list(REMOVE_ITEM helpers ${programs} ${harnesses})
	set(helper_library "")
	if(folder STREQUAL "nvtx" AND helpers)
		add_library(trz_fakenvtx SHARED ${helpers})
		set_target_properties(trz_fakenvtx PROPERTIES
			OUTPUT_NAME fakenvtx
			C_VISIBILITY_PRESET default
			LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/nvtx")
		target_include_directories(trz_fakenvtx PRIVATE "${PROJECT_SOURCE_DIR}/alloc")
	elseif(folder STREQUAL "plug" AND helpers)
		foreach(binding now lazy)
			add_library(relink_${binding} MODULE ${helpers})
			set_target_properties(relink_${binding} PROPERTIES
				C_VISIBILITY_PRESET default
				LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/plug")
			target_compile_options(relink_${binding} PRIVATE -fplt)
			target_link_options(relink_${binding} PRIVATE LINKER:-z,${binding} LINKER:-z,relro)
		endforeach()
		set(helper_library trz_events)
	elseif(folder STREQUAL "gdb" AND helpers)
		trz_program(gdb_target gdb ${helpers})
		target_compile_options(gdb_target PRIVATE -O0 -g)
	elseif(helpers)
		set(helper_library trz_test_${folder})
		add_library(${helper_library} STATIC ${helpers})
		target_include_directories(${helper_library} PUBLIC "${PROJECT_SOURCE_DIR}/tests/${folder}")
		target_link_libraries(${helper_library} PUBLIC trz_testing ${everything} PkgConfig::cmocka)
	endif()
	if(folder STREQUAL "gpu")
		list(APPEND helper_library $<TARGET_NAME_IF_EXISTS:trz_test_contract>)
	endif()
	foreach(file IN LISTS programs)
		cmake_path(GET file STEM name)
		trz_program(${name} ${folder} ${file} ${helper_library})
		string(REGEX REPLACE "^test_" "" short ${name})
		trz_register(${short} ${folder} ${name})
		if(folder STREQUAL "plug")
			target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}/plug")
			add_dependencies(${name} relink_now relink_lazy)
		endif()
		if(TARGET trz_fakenvtx)
			add_dependencies(${name} trz_fakenvtx)
		endif()
		if(folder STREQUAL "bench")
			target_sources(${name} PRIVATE "${PROJECT_SOURCE_DIR}/bench/gpu/figures/cost_table.c")
		endif()
	endforeach()
	foreach(file IN LISTS harnesses)
		cmake_path(GET file STEM name)
		string(REGEX REPLACE "^fuzz_" "" short ${name})
		if(TRZ_LIBFUZZER)
			trz_program(${name} ${folder} ${file})
			target_compile_definitions(${name} PRIVATE TRZ_LIBFUZZER)
			target_link_options(${name} PRIVATE -fsanitize=fuzzer)
		else()
			trz_program(${name} ${folder} ${file} ${helper_library})
		endif()
		trz_register(${short} ${folder} ${name} "${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${short}")
	endforeach()
	trz_sources(scripts tests/${folder}/test_*.py)
	foreach(file IN LISTS scripts)
		cmake_path(GET file STEM name)
		string(REGEX REPLACE "^test_" "" short ${name})
		trz_register(${short} ${folder} "${Python3_EXECUTABLE}" "${file}")
	endforeach()
endforeach()

if(NOT TRZ_SANITIZE)
	include(cmake/tests_native.cmake)
	if(TARGET terrazzo_torch)
		trz_sources(torch_test_sources tests/plug/test_*.cpp)
		foreach(file IN LISTS torch_test_sources)
			cmake_path(GET file STEM name)
			add_executable(${name} ${file})
			set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/plug")
			target_include_directories(${name} PRIVATE plug plug/torch tests/common)
			target_compile_options(${name} PRIVATE -fexceptions)
			target_link_libraries(${name} PRIVATE terrazzo_torch terrazzo trz_lookalike_driver Threads::Threads)
			target_link_options(${name} PRIVATE LINKER:--no-as-needed)  # the heap opens the driver by its name
			string(REGEX REPLACE "^test_" "" short ${name})
			trz_register(${short} plug ${name})
		endforeach()
		set_target_properties(test_plug_constructors PROPERTIES ENABLE_EXPORTS ON)
		add_dependencies(test_plug_constructors native_constructed)
	endif()
	trz_register(tree tidy "${Python3_EXECUTABLE}" "${PROJECT_SOURCE_DIR}/tools/tidy.py")
endif()
