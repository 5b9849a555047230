// Einsum's own kernel; tests/models/expand_test.cpp tests those that other operators replace.

#include <doctest/doctest.h>

#include "tests/ops/op_harness.h"

using namespace lenslet;
using namespace lenslet::test;

TEST_CASE("einsum/kernel") {
  struct Case {
    const char* equation;
    std::vector<Shape> shapes;
  };
  for (const Case& c : std::vector<Case>{{"->", {{}}},
                                         {"i,i", {{5}, {5}}},
                                         {"bij, bjk -> bik", {{2, 3, 7}, {2, 7, 5}}},
                                         {"...ii->...i", {{3, 5, 5}}},
                                         {"...ii", {{3, 2, 5, 5}}},
                                         {"iji->j", {{4, 3, 4}}},
                                         {"i...j,j...->...i", {{2, 3, 4, 5}, {5, 4}}},
                                         {"...,...", {{2, 1, 4}, {3, 1}}},
                                         {"...ij,...jk->...ik", {{2, 3}, {3, 4}}},
                                         {"b...,...c->...bc", {{7, 1, 3}, {2, 3, 4}}},
                                         {"bhwc,hkc->bhwk", {{2, 3, 4, 5}, {3, 6, 5}}},
                                         {"ij,kl->lkij", {{2, 3}, {4, 5}}},
                                         {"ij,jk,kl,lm->im", {{2, 3}, {3, 4}, {4, 5}, {5, 6}}},
                                         {"zA,Ab", {{2, 3}, {3, 4}}},
                                         {"ij,jk->ik", {{0, 3}, {3, 4}}},
                                         {"ij,jk->ik", {{2, 0}, {0, 4}}}})
    for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::u32, DType::i64, DType::u64}) {
      OpCase einsum{.op = "Einsum", .attributes = {{"equation", std::string(c.equation)}}, .tolerance = 4e-6};
      unsigned seed = 1;
      for (const Shape& shape : c.shapes)
        einsum.inputs.push_back(random_of(dtype, shape, seed++, is_unsigned(dtype) ? 0 : -50, 50));
      check_op(einsum);
    }
}

TEST_CASE("einsum/equations_that_name_other_axes_are_refused") {
  const auto refused = [](const char* equation, std::vector<Tensor> inputs) {
    return infer_error(
        {.op = "Einsum", .attributes = {{"equation", std::string(equation)}}, .inputs = std::move(inputs)});
  };
  const Tensor x = random_f32({2, 3}, 1);
  for (const char* equation : {"ij,jk", "i", "ijk", "i1", "ij->ii", "ij->ik", "i.j", "ij-ji", "ij->ji->ij"})
    CHECK_MESSAGE(refused(equation, {x}) == ErrorKind::invalid_model, equation);
  CHECK(refused("ij,ij", {x, random_f32({2, 4}, 1)}) == ErrorKind::invalid_model);
  CHECK(refused("ij,ij", {x, random_of(DType::f64, {2, 3}, 1, 0, 1)}) == ErrorKind::invalid_model);
  CHECK(refused("ij,ij", {Tensor(DType::u8, {2, 3}), Tensor(DType::u8, {2, 3})}) == ErrorKind::unsupported);
}
