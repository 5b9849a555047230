// expand_einsum: the operators that replace an Einsum, and equal results.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "oracle/oracle.h"
#include "tests/graph/graph_builder.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

using Dims = std::vector<std::int64_t>;

std::string types_of(const Graph& graph) {
  std::string names;
  for (const Node& node : graph.nodes) names.append(names.empty() ? "" : " ").append(node.type());
  return names;
}

}  // namespace

TEST_CASE("expand_einsum/equations") {
  struct Case {
    std::string equation;
    std::vector<Dims> shapes;
    std::string as;
  };
  for (const Case& c : std::vector<Case>{
           {"bij, bjk -> bik", {{2, 3, 4}, {2, 4, 5}}, "MatMul"},
           {"ij,jk", {{3, 4}, {4, 5}}, "MatMul"},
           {"bhid,bhjd->bhij", {{2, 3, 4, 5}, {2, 3, 6, 5}}, "Transpose Reshape Reshape MatMul Reshape"},
           {"jk,ij->ik", {{4, 5}, {3, 4}}, "MatMul"},
           {"bid,bjd->ibj", {{2, 4, 5}, {2, 6, 5}}, "Transpose MatMul Transpose"},
           {"nctv,vw->nctw", {{2, 3, 4, 5}, {5, 6}}, "Reshape MatMul Reshape"},
           {"nkctv,kvw->nctw", {{2, 3, 4, 5, 6}, {3, 6, 7}}, "Transpose Reshape Reshape MatMul Reshape"},
           {"bhqk,bkhd->bqhd", {{2, 3, 4, 5}, {2, 5, 3, 6}}, "Transpose Reshape Reshape MatMul Reshape Transpose"},
           {"bchw,bkhw->bck", {{2, 3, 4, 5}, {2, 6, 4, 5}}, "Transpose Reshape Reshape MatMul"},
           {"bhwc,hkc->bhwk", {{2, 3, 4, 5}, {3, 6, 5}}, "Transpose Transpose Reshape MatMul Reshape Transpose"},
           {"ij,j->i", {{3, 4}, {4}}, "Reshape MatMul Reshape"},
           {"bij,bij->bi", {{2, 3, 4}, {2, 3, 4}}, "Mul ReduceSum"},
           {"i,i->", {{3}, {3}}, "Reshape Reshape MatMul Reshape"},
           {"ij,kl->ijkl", {{2, 3}, {4, 5}}, "Reshape Reshape Mul"},
           {"bc,bhwc->bhwc", {{2, 5}, {2, 3, 4, 5}}, "Reshape Mul"},
           {"bij,bjk->k", {{2, 3, 4}, {2, 4, 5}}, "ReduceSum Reshape Reshape MatMul Reshape"},
           {"ij,jk,kl->il", {{3, 4}, {4, 5}, {5, 6}}, "MatMul MatMul"},
           {"bi,ij,bj->b", {{2, 3}, {3, 4}, {2, 4}}, "MatMul Mul ReduceSum"},
           {"ij->ji", {{3, 4}}, "Transpose"},
           {"ij->ij", {{3, 4}}, "Identity"},
           {"abc->ca", {{3, 4, 5}}, "ReduceSum Transpose"},
           {"ab->", {{3, 4}}, "ReduceSum"},
           {"...ij,...kj->...ik", {{2, 3, 4}, {2, 5, 4}}, "Transpose MatMul"},
           {"...ij,jk->...ik", {{2, 3, 4}, {4, 5}}, "Reshape MatMul Reshape"},
           {"...bij,...bjk->...bik", {{2, 3, 4}, {7, 2, 4, 5}}, "Transpose Reshape MatMul Reshape Transpose"},
           {"ij,jk->ik", {{1, 4}, {4, 5}}, "MatMul"},
           {"ij,jkl->ik", {{2, 3}, {3, 4, 5}}, "ReduceSum MatMul"},
           {"bij,bj->bi", {{2, 3, 4}, {2, 4}}, "Reshape MatMul Reshape"},
           {"mij,nji->mn", {{2, 3, 4}, {5, 4, 3}}, "Transpose Reshape Reshape MatMul"},
           // Diagonals and broadcast axes.
           {"ii->i", {{3, 3}}, "Einsum"},
           {"bij,bjk->bik", {{1, 3, 4}, {2, 4, 5}}, "Einsum"},
           // The product of the first two would be by far the largest tensor.
           {"i,j,ij->", {{30}, {40}, {30, 40}}, "Reshape Reshape Mul Reshape Reshape MatMul Reshape"},
           {"ijk,k,ij->k", {{9, 10, 11}, {11}, {9, 10}}, "Reshape Mul Transpose Reshape Reshape MatMul Reshape"},
           {"i,j,k->ijk", {{5}, {6}, {7}}, "Reshape Reshape Mul Reshape Reshape Mul"},
           {"ij,kl,ik->jl", {{30, 2}, {40, 3}, {30, 40}}, "Einsum"},
           {"ai,bj,b->aj", {{30, 2}, {40, 5}, {40}}, "Einsum"},
           // The product would have more axes than allowed, or exactly as many.
           {"abcde,fghi,abcd,efghi->abcde", {{1, 1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1}, {1, 1, 1, 1, 1}}, "Einsum"},
           {"abcd,efgh,abcdefgh->",
            {{2, 1, 2, 1}, {1, 2, 1, 2}, {2, 1, 2, 1, 1, 2, 1, 2}},
            "Reshape Reshape Mul Reshape Reshape MatMul Reshape"}}) {
    CAPTURE(c.equation);
    GraphBuilder builder;
    std::vector<ValueId> inputs;
    for (const Dims& dims : c.shapes) inputs.push_back(builder.input("x" + std::to_string(inputs.size()), dims));
    builder.output(builder.node("Einsum", inputs, {{"equation", c.equation}}));
    const Graph graph = builder.build(), expanded = after(graph, "expand_einsum");
    CHECK(types_of(expanded) == c.as);
    CHECK(worst_difference(graph, expanded) < 2e-6);

    const std::vector<Tensor> given = random_inputs(graph, 5);
    std::vector<oracle::Array> arrays;
    for (const Tensor& tensor : given) arrays.push_back(oracle::from_tensor(tensor));
    const auto expected = oracle::run("Einsum", {{"equation", c.equation}}, arrays)->at(0).values;
    const Tensor y = interpret(expanded, given)[0];
    REQUIRE(static_cast<std::size_t>(y.elems()) == expected.size());
    for (std::size_t i = 0; i < expected.size(); ++i)
      CHECK(double{y.values<float>()[i]} == doctest::Approx(expected[i]).epsilon(1e-5).scale(10));
  }
}
