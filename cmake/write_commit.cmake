# cmake -DSOURCE=FOLDER -DHEADER=FILE -P write_commit.cmake: writes the checkout's commit as LENSLET_COMMIT, empty
# outside of a checkout. The file is touched only if the commit changes.
cmake_minimum_required(VERSION 3.25) # without it the policies are those of CMake 2
execute_process(
  COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=7 "--exclude=*"
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE failed)
execute_process(
  COMMAND git -C "${SOURCE}" rev-parse --show-prefix
  OUTPUT_VARIABLE inside OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_git)
if(failed OR no_git OR inside) # inside another project's checkout the commit is not ours
  set(commit "")
endif()
file(CONFIGURE OUTPUT "${HEADER}" CONTENT "#define LENSLET_COMMIT \"@commit@\"\n" @ONLY)
