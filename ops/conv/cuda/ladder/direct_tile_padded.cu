// The third rung of the ladder to direct_tile (../direct_tile.cu), kept so that the last step can be measured.
//
// direct_tile_padded: where the threads of direct_block (direct_pixel.cu) each read their windows through the caches, a
// block reads its tile of the input once into shared memory, and a thread keeps four neighbouring outputs of a group of
// filters in registers. x comes with its pads; but what puts them there reads and writes the whole input once more.
// direct_tile does without, by writing zeros while it copies.

#include "ops/conv/cuda/direct_tile.h"

namespace lenslet::cuda {
namespace {

class DirectTilePadded final : public DirectTile {
 public:
  std::string_view name() const override { return "direct_tile_padded"; }

 private:
  std::optional<std::string> refuse(const ConvProblem& p, const Target& target) const override {
    if (!p.padded()) return "no pads: the same as direct_tile";
    return DirectTile::refuse(p, target);
  }
  Plan plan(const ConvProblem& p, const Target& target) const override {
    Plan plan = DirectTile::plan(p, target);
    plan.explicit_padding = true;
    return plan;
  }
};

}  // namespace

const Kernel& conv_direct_tile_padded() {
  static const DirectTilePadded algorithm;
  return algorithm;
}

}  // namespace lenslet::cuda
