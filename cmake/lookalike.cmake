# SPDX-License-Identifier: Apache-2.0
#
# The look-alike libraries over the simulated device, in <build>/lib/sim. Each exports what its own sources mark as
# visible and nothing of what it links.

set(lookalike_dir "${PROJECT_BINARY_DIR}/lib/sim")

# trz_lookalike(NAME SONAME FOLDER LIBRARY...)
function(trz_lookalike name soname folder)
	trz_sources(files lookalike/${folder}/*.c)
	cmake_path(GET soname STEM output)
	cmake_path(GET soname EXTENSION suffix)
	add_library(${name} SHARED ${files})
	set_target_properties(${name} PROPERTIES
		PREFIX ""
		OUTPUT_NAME ${output}
		SUFFIX ${suffix}
		NO_SONAME ON
		LIBRARY_OUTPUT_DIRECTORY "${lookalike_dir}"
		BUILD_RPATH "$ORIGIN"
		INSTALL_RPATH "$ORIGIN")
	target_include_directories(${name} PRIVATE "${PROJECT_SOURCE_DIR}")
	target_link_libraries(${name} PRIVATE trz_base ${ARGN})
	# A process keeps pointers into them, to threads' ends, names and exit handlers: none is ever unloaded.
	target_link_options(${name} PRIVATE LINKER:-soname,${soname} LINKER:--exclude-libs,ALL LINKER:-z,nodelete)
endfunction()

# trz_lookalike_runtime(MAJOR SONAME): symbols of libcudart have the library's name as their version.
function(trz_lookalike_runtime major soname)
	set(name trz_lookalike_runtime${major})
	set(map "${PROJECT_BINARY_DIR}/${soname}.map")
	file(CONFIGURE OUTPUT "${map}" CONTENT "${soname} { global: cuda*; __cuda*; local: *; };\n")
	trz_lookalike(${name} ${soname} runtime trz_lookalike_driver)
	target_compile_definitions(${name} PRIVATE RUNTIME_MAJOR=${major})
	target_link_options(${name} PRIVATE "LINKER:--version-script=${map}")
	set_target_properties(${name} PROPERTIES LINK_DEPENDS "${map}")
endfunction()

trz_lookalike(trz_lookalike_driver libcuda.so.1 driver trz_sim trz_fatbin trz_core PkgConfig::jansson)
# Its functions call each other, not what a program puts before them: as in NVIDIA's.
target_link_options(trz_lookalike_driver PRIVATE LINKER:-Bsymbolic-functions)
trz_lookalike_runtime(11 libcudart.so.11.0)
trz_lookalike_runtime(12 libcudart.so.12)
trz_lookalike_runtime(13 libcudart.so.13)

# For programs that link the runtime statically. What they name, libcudart_static.a, is a script for the linker that
# takes the real archive and the driver.
trz_sources(runtime_sources lookalike/runtime/*.c)
add_library(trz_lookalike_runtime_static STATIC ${runtime_sources})
set_target_properties(trz_lookalike_runtime_static PROPERTIES
	OUTPUT_NAME cudart_lookalike
	ARCHIVE_OUTPUT_DIRECTORY "${lookalike_dir}")
target_include_directories(trz_lookalike_runtime_static PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(trz_lookalike_runtime_static PRIVATE trz_base)
file(CONFIGURE OUTPUT "${lookalike_dir}/libcudart_static.a"
	CONTENT "/* The look-alike CUDA runtime. */\nINPUT(libcudart_lookalike.a libcuda.so.1)\n")
file(CREATE_LINK libcudart.so.13 "${lookalike_dir}/libcudart.so" SYMBOLIC)
file(CREATE_LINK libcuda.so.1 "${lookalike_dir}/libcuda.so" SYMBOLIC)

trz_lookalike(trz_lookalike_nvml libnvidia-ml.so.1 nvml trz_lookalike_driver)
set(lookalikes trz_lookalike_driver trz_lookalike_runtime11 trz_lookalike_runtime12 trz_lookalike_runtime13
	trz_lookalike_nvml)

# Preloaded into programs on a simulated device, before whatever else: it must be initialised first, it must not bind
# lazily while it changes the dynamic linker's code, and programs that it is preloaded into have no sanitizer.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
	trz_lookalike(trz_lookalike_redirect libterrazzo_redirect.so redirect)
	target_compile_options(trz_lookalike_redirect PRIVATE -fno-sanitize=all)
	target_link_options(trz_lookalike_redirect PRIVATE -fno-sanitize=all LINKER:-z,initfirst LINKER:-z,now)
	list(APPEND lookalikes trz_lookalike_redirect)
endif()
