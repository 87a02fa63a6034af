# SPDX-License-Identifier: Apache-2.0
#
# The jemalloc of the metadata as target trz_jemalloc; see tools/build_jemalloc.sh.

set(jemalloc_dir "${TRZ_DEPS_DIR}/jemalloc")

execute_process(
	COMMAND "${PROJECT_SOURCE_DIR}/tools/build_jemalloc.sh" "${jemalloc_dir}" ${TRZ_JEMALLOC_SOURCE}
	RESULT_VARIABLE jemalloc_failed)
if(jemalloc_failed)
	message(FATAL_ERROR "jemalloc could not be built (reason and ways out above)")
endif()

add_library(trz_jemalloc STATIC IMPORTED)
set_target_properties(trz_jemalloc PROPERTIES
	IMPORTED_LOCATION "${jemalloc_dir}/lib/libtrz_jemalloc.a"
	INTERFACE_INCLUDE_DIRECTORIES "${jemalloc_dir}/include"
	INTERFACE_LINK_LIBRARIES "Threads::Threads;m")
