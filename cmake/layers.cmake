# SPDX-License-Identifier: Apache-2.0
#
# How the folders of the tree become targets. Files are found by pattern: adding one needs no edit here.

# trz_sources(VARIABLE PATTERN...): the files of the source tree that match.
function(trz_sources variable)
	list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/")
	file(GLOB files CONFIGURE_DEPENDS ${ARGN})
	set(${variable} ${files} PARENT_SCOPE)
endfunction()

# trz_layer(NAME FOLDER LIBRARY...): the static library of one folder; an empty folder gives an empty one.
function(trz_layer name folder)
	trz_sources(files ${folder}/*.c)
	if(files)
		add_library(${name} STATIC ${files})
		target_include_directories(${name} PUBLIC "${PROJECT_SOURCE_DIR}/${folder}")
		target_link_libraries(${name} PUBLIC trz_base ${ARGN})
	else()
		add_library(${name} INTERFACE)
	endif()
endfunction()

# trz_public(TARGET NAME): programs link TARGET as terrazzo::NAME, be terrazzo installed or a part of their build.
function(trz_public target name)
	set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
	add_library(terrazzo::${name} ALIAS ${target})
	target_include_directories(${target} INTERFACE
		"$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
endfunction()

# trz_script(FILE TARGET-FOLDER): makes the Python script FILE runnable as TARGET-FOLDER/<name>, with the
# environment that tests get too.
function(trz_script file folder)
	cmake_path(GET file STEM name)
	list(JOIN TRZ_ENVIRONMENT "' '" environment)
	file(CONFIGURE OUTPUT "${folder}/${name}" @ONLY
		CONTENT "#!/bin/sh\nexec env '@environment@' '@Python3_EXECUTABLE@' '@file@' \"$@\"\n")
	file(CHMOD "${folder}/${name}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE
		WORLD_READ WORLD_EXECUTE)
endfunction()
