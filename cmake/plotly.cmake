# SPDX-License-Identifier: Apache-2.0
#
# plotly.js for the pages of `terrazzo report`; see tools/fetch_plotly.sh. Without it all else works.

set(TRZ_PLOTLY "" CACHE FILEPATH "plotly.min.js for pages of reports; empty: the Python package's, fetched by pip")
set(plotly_file "${TRZ_PLOTLY}")
set(plotly_license "")

if(NOT plotly_file)
	set(plotly_dir "${TRZ_DEPS_DIR}/plotly")
	execute_process(
		COMMAND "${CMAKE_COMMAND}" -E env "PYTHON=${Python3_EXECUTABLE}"
			"${PROJECT_SOURCE_DIR}/tools/fetch_plotly.sh" "${plotly_dir}"
		RESULT_VARIABLE plotly_failed)
	if(plotly_failed)
		message(WARNING "plotly.js cannot be fetched (reason above): 'terrazzo report' will not work. "
			"Ways out: configure again with a network, or with -DTRZ_PLOTLY=<plotly.min.js>")
		return()
	endif()
	set(plotly_file "${plotly_dir}/plotly.min.js")
	set(plotly_license "${plotly_dir}/LICENSE.txt")
endif()

file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/share/terrazzo")
file(COPY_FILE "${plotly_file}" "${PROJECT_BINARY_DIR}/share/terrazzo/plotly.min.js" ONLY_IF_DIFFERENT)
if(TRZ_INSTALL AND SKBUILD)
	install(FILES "${plotly_file}" DESTINATION terrazzo/share COMPONENT python)
elseif(TRZ_INSTALL)
	install(FILES "${plotly_file}" DESTINATION ${CMAKE_INSTALL_DATADIR}/terrazzo)
	if(plotly_license)
		install(FILES "${plotly_license}" DESTINATION ${CMAKE_INSTALL_DATADIR}/terrazzo RENAME plotly.LICENSE.txt)
	endif()
endif()
