# LENSLET_FAMILIES: builds a library from the core and some families of operators (the folders of ops/). Without a
# family its operators, the passes that name them, the command's verbs for it and its tests are left out. A model with
# an absent operator is refused like one with an unknown operator.
set(LENSLET_FAMILIES all CACHE STRING "Families of operators: all, or some folders of ops/, as conv,pool")

# lenslet_family(NAME [FOLDER...]): declares ops/NAME, which uses these families, declared earlier.
function(lenslet_family name)
  set_property(GLOBAL APPEND PROPERTY LENSLET_ALL_FAMILIES ${name})
  list(TRANSFORM ARGN REPLACE "^ops/" "")
  set_property(GLOBAL PROPERTY LENSLET_USES_${name} ${ARGN})
endfunction()

# lenslet_with_used(OUT ABSENT FAMILY...): these families and those that they use, and the others.
function(lenslet_with_used out absent)
  get_property(families GLOBAL PROPERTY LENSLET_ALL_FAMILIES)
  foreach(family IN LISTS ARGN)
    if(NOT family IN_LIST families)
      list(JOIN families ", " known)
      message(FATAL_ERROR "There is no family of operators '${family}'; there are: ${known}")
    endif()
  endforeach()
  list(REVERSE families)
  foreach(family IN LISTS families)
    if(family IN_LIST ARGN)
      get_property(used GLOBAL PROPERTY LENSLET_USES_${family})
      list(APPEND ARGN ${used})
    endif()
  endforeach()
  list(REMOVE_DUPLICATES ARGN)
  list(REMOVE_ITEM families ${ARGN} "")
  set(${out} ${ARGN} PARENT_SCOPE)
  set(${absent} ${families} PARENT_SCOPE)
endfunction()

# Once all are declared: sets LENSLET_BUILT_FAMILIES and, for lenslet_layer(), LENSLET_ABSENT_FAMILIES (global properties).
function(lenslet_choose_families)
  get_property(wanted GLOBAL PROPERTY LENSLET_ALL_FAMILIES)
  if(NOT LENSLET_FAMILIES STREQUAL "all")
    string(REPLACE "," ";" wanted "${LENSLET_FAMILIES}")
    list(APPEND wanted elementwise movement shape) # passes create Cast, Transpose, LayoutConvert, Reshape, Identity ...
    if(LENSLET_TOOLS)
      list(APPEND wanted conv) # tools/measuring times its kernels
    endif()
  endif()
  lenslet_with_used(built absent ${wanted})
  if(absent)
    list(JOIN built ", " text)
    message(STATUS "Families of operators, with those that are needed: ${text}")
  endif()
  set_property(GLOBAL PROPERTY LENSLET_BUILT_FAMILIES ${built})
  set_property(GLOBAL PROPERTY LENSLET_ABSENT_FAMILIES ${absent})
endfunction()

# lenslet_built_families(SOURCE): for sources that call built() (ops/core/built_families.h).
function(lenslet_built_families source)
  get_property(absent GLOBAL PROPERTY LENSLET_ABSENT_FAMILIES)
  if(absent)
    get_property(built GLOBAL PROPERTY LENSLET_BUILT_FAMILIES)
    list(JOIN built " " built)
    set_property(SOURCE ${source} APPEND PROPERTY COMPILE_DEFINITIONS "LENSLET_FAMILIES=\"${built}\"")
  endif()
endfunction()
