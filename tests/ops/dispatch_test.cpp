#include <doctest/doctest.h>

#include <string>
#include <typeinfo>
#include <vector>

#include "base/dtypes.h"
#include "tests/expect_error.h"

using namespace lenslet;

namespace {

// The types of computation.
constexpr DType every_type[] = {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i8,  DType::u8,     DType::i16,
                                DType::u16, DType::i32, DType::u32, DType::i64,  DType::u64, DType::boolean};

}  // namespace

TEST_CASE("dispatch/gives_the_type_of_the_list") {
  for (const DType dtype : every_type) {
    CAPTURE(std::string(to_string(dtype)));
    CHECK((dispatch(dtype, AllTypes(), []<typename T>(std::type_identity<T>) { return dtype_of<T>::value; }) == dtype));
    CHECK(dispatch(dtype, AllTypes(), []<typename T>(std::type_identity<T>) { return sizeof(T); }) ==
          dtype_bytes(dtype));
    dispatch_bytes(dtype_bytes(dtype),
                   [&]<typename T>(std::type_identity<T>) { CHECK(sizeof(T) == dtype_bytes(dtype)); });
  }
}

TEST_CASE("dispatch/a_type_outside_the_list_is_an_internal_error") {
  using List = Types<float, std::int64_t>;
  for (const DType dtype : every_type) {
    bool called = false;
    std::string message;
    try {
      dispatch(dtype, List(), [&]<typename T>(std::type_identity<T>) { called = true; });
    } catch (const Error& error) {
      CHECK((error.kind() == ErrorKind::internal));
      message = error.message();
    }
    CHECK(called == dtypes<List>.contains(dtype));
    CHECK(called == message.empty());
    if (!called) CHECK(message.find(to_string(dtype)) != std::string::npos);
  }
  CHECK_ERROR(dispatch_bytes(3, []<typename T>(std::type_identity<T>) {}), internal, "elements of 3 bytes");
}

TEST_CASE("dispatch/sets_of_types") {
  CHECK(dtypes<Types<float>>.str() == "float32");
  CHECK(dtypes<Types<std::int64_t, float>>.str() == "float32, int64");
  CHECK(dtypes<AllTypes>.str() == "any type but float8, float4, int4, int2");
  CHECK_FALSE(dtypes<AllTypes>.all());
  CHECK(DTypeSet::any().str() == "any type");
  for (unsigned i = 0; i < dtype_count; ++i) {
    CHECK(DTypeSet::any().contains(static_cast<DType>(i)));
    CHECK(dtypes<AllTypes>.contains(static_cast<DType>(i)) == (i < std::size(every_type)));
    CHECK(DTypeSet().with(static_cast<DType>(i)).str() == to_string(static_cast<DType>(i)));
  }
  CHECK(DTypeSet::any().all());
  CHECK(DTypeSet().empty());
  CHECK(DTypeSet().str().empty());
  const DTypeSet both = dtypes<Types<float, bool>>.with(dtypes<Types<Float16>>);
  for (const DType dtype : every_type)
    CHECK(both.contains(dtype) == (dtype == DType::f32 || dtype == DType::boolean || dtype == DType::f16));
  CHECK_FALSE(both.all());
}
