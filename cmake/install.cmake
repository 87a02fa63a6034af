# SPDX-License-Identifier: Apache-2.0
#
# The installed package: headers, both libraries, and how CMake and pkg-config find them; the command and its parts.

include(CMakePackageConfigHelpers)

install(TARGETS terrazzo terrazzo_static terrazzo_cuda terrazzo_cuda_static EXPORT terrazzo-targets)
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/terrazzo)
install(EXPORT terrazzo-targets NAMESPACE terrazzo:: DESTINATION ${package_dir})
configure_package_config_file(cmake/terrazzo-config.cmake.in terrazzo-config.cmake
	INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(terrazzo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/terrazzo-config.cmake"
	"${CMAKE_CURRENT_BINARY_DIR}/terrazzo-config-version.cmake" DESTINATION ${package_dir})

file(RELATIVE_PATH prefix_from_pc "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" /p)
configure_file(cmake/terrazzo.pc.in terrazzo.pc @ONLY)
configure_file(cmake/terrazzo_cuda.pc.in terrazzo_cuda.pc @ONLY)
install(FILES "${CMAKE_CURRENT_BINARY_DIR}/terrazzo.pc" "${CMAKE_CURRENT_BINARY_DIR}/terrazzo_cuda.pc"
	DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# ---- the command and the simulated device: look-alikes, stand-ins' sources, Python part ----------------------

if(NOT TRZ_BUILD_TOOLS)
	return()
endif()
install(TARGETS terrazzo_cli)
install(DIRECTORY "${man_dir}" DESTINATION ${CMAKE_INSTALL_MANDIR})
install(TARGETS terrazzo_preload)
install(TARGETS ${lookalikes} trz_lookalike_runtime_static DESTINATION ${CMAKE_INSTALL_LIBDIR}/terrazzo/sim)
install(FILES "${lookalike_dir}/libcudart_static.a" "${lookalike_dir}/libcudart.so" "${lookalike_dir}/libcuda.so"
	DESTINATION ${CMAKE_INSTALL_LIBDIR}/terrazzo/sim)

# In a wheel (pyproject.toml) everything lies in the package's own folder.
set(sim_files COMPONENT Unspecified)
if(SKBUILD)
	install(TARGETS terrazzo_cli RUNTIME DESTINATION terrazzo/bin COMPONENT python)
	install(TARGETS terrazzo terrazzo_preload LIBRARY DESTINATION terrazzo/lib COMPONENT python)
	set(sim_libraries terrazzo/lib/sim)
	set(sim_python terrazzo)
	set(sim_files COMPONENT python)
else()
	set(sim_libraries ${CMAKE_INSTALL_LIBDIR}/terrazzo/sim)
	set(sim_python ${CMAKE_INSTALL_DATADIR}/terrazzo/python/terrazzo)
	install(DIRECTORY python/terrazzo/ DESTINATION ${sim_python} ${sim_files} PATTERN __pycache__ EXCLUDE)
endif()
install(FILES plug/python/python_frames.c include/terrazzo.h DESTINATION ${sim_python}/src ${sim_files})
install(FILES sim/sim_recording.h DESTINATION ${sim_python}/sim ${sim_files})
install(DIRECTORY lookalike/standin/ DESTINATION ${sim_python}/sim/standin ${sim_files})
install(TARGETS ${lookalikes} LIBRARY DESTINATION ${sim_libraries} ${sim_files})
