// Random geometries: rulebooks compared with loops over all taps and sites, convolutions with dense ones in double
// precision that know sites only as a mask.

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "ops/core/kernel.h"
#include "ops/core/sum_tolerance.h"
#include "tests/larger_error.h"
#include "tests/ops/op_runner.h"
#include "tests/ops/sparse_sites.h"
#include "tests/random_seed.h"

namespace lenslet::test {
namespace {

#ifdef LENSLET_SANITIZED
constexpr int drawn = 150;
#else
constexpr int drawn = 2500;
#endif

struct Geometry {
  std::string kind;
  std::size_t dims = 3;
  std::int64_t images = 1, channels = 1, filters = 1;
  Ints size, kernel, stride, dilation, pads, out;

  AttributeList attributes() const {
    AttributeList list{
        {"kind", kind}, {"spatial_shape", size}, {"images", images}, {"kernel_shape", kernel}, {"dilations", dilation}};
    if (kind != "submanifold") {
      list.emplace_back("strides", stride);
      list.emplace_back("pads", pads);
    }
    return list;
  }
  std::string str() const {
    return fmt::format("{} {}x[{}] kernel [{}] stride [{}] dilation [{}] pads [{}] {} -> {}", kind, images,
                       fmt::join(size, ","), fmt::join(kernel, ","), fmt::join(stride, ","), fmt::join(dilation, ","),
                       fmt::join(pads, ","), channels, filters);
  }
  /// The input that output `o` reads through a tap (transposed: the output that input `o` adds to).
  void through(const Site& o, const Ints& tap, Site& site) const {
    const bool centred = kind == "submanifold";
    site[0] = o[0];
    for (std::size_t a = 0; a < dims; ++a)
      site[1 + a] = o[1 + a] * stride[a] + tap[a] * dilation[a] - (centred ? kernel[a] / 2 * dilation[a] : pads[a]);
  }
};

Geometry draw_geometry(std::mt19937& random) {
  const auto in = [&](int low, int high) { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
  for (;;) {
    Geometry g;
    const char* const kinds[] = {"submanifold", "regular", "transposed"};
    g.kind = kinds[in(0, 2)];
    g.dims = static_cast<std::size_t>(in(2, 3));
    g.images = in(1, 3);
    g.channels = in(1, 20);
    g.filters = in(1, 20);
    bool fits = true;
    for (std::size_t a = 0; a < g.dims; ++a) {
      g.size.push_back(in(1, g.dims == 3 ? 6 : 11));
      g.kernel.push_back(g.kind == "submanifold" ? 2 * in(0, 2) + 1 : in(1, 5));
      g.stride.push_back(g.kind == "submanifold" ? 1 : in(1, 3));
      g.dilation.push_back(in(1, 3));
    }
    for (std::size_t i = 0; i < 2 * g.dims; ++i) g.pads.push_back(g.kind == "submanifold" ? 0 : in(0, 3));
    for (std::size_t a = 0; a < g.dims; ++a) {
      const std::int64_t span = g.dilation[a] * (g.kernel[a] - 1) + 1, pads = g.pads[a] + g.pads[a + g.dims];
      const std::int64_t room = g.size[a] + pads - span;
      g.out.push_back(g.kind == "submanifold" ? g.size[a]
                      : g.kind == "regular"   ? (room < 0 ? 0 : room / g.stride[a] + 1)
                                              : (g.size[a] - 1) * g.stride[a] - pads + span);
      fits = fits && g.out.back() > 0;
    }
    if (fits) return g;
  }
}

template <typename F>
void for_each_cell(const Ints& size, const F& f) {
  Ints at(size.size(), 0);
  for (;;) {
    f(at);
    std::size_t a = size.size();
    while (a > 0 && ++at[a - 1] == size[a - 1]) at[--a] = 0;
    if (a == 0) return;
  }
}

/// Images of channels in double, and the mask of sites.
struct Dense {
  Ints size;
  std::int64_t channels;
  std::vector<double> values;
  std::vector<bool> is_site;

  Dense(std::int64_t images, Ints cells, std::int64_t channel_count) : size(std::move(cells)), channels(channel_count) {
    auto count = static_cast<std::size_t>(images);
    for (const std::int64_t dim : size) count *= static_cast<std::size_t>(dim);
    values.resize(count * static_cast<std::size_t>(channels));
    is_site.resize(count);
  }
  bool inside(const Site& site) const {
    for (std::size_t a = 0; a < size.size(); ++a)
      if (site[1 + a] < 0 || site[1 + a] >= size[a]) return false;
    return true;
  }
  std::size_t cell(const Site& site) const {
    std::int64_t number = site[0];
    for (std::size_t a = 0; a < size.size(); ++a) number = number * size[a] + site[1 + a];
    return static_cast<std::size_t>(number);
  }
  void put(const std::vector<Site>& sites, const float* features) {
    for (const Site& site : sites) {
      is_site[cell(site)] = true;
      for (std::int64_t c = 0; c < channels; ++c) at(cell(site), c) = *features++;
    }
  }
  double& at(std::size_t cell, std::int64_t c) {
    return values[cell * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)];
  }
  double at(std::size_t cell, std::int64_t c) const {
    return values[cell * static_cast<std::size_t>(channels) + static_cast<std::size_t>(c)];
  }
};

/// y at `to` += the tap's filters times x at `from`.
void add_product(const Dense& x, std::size_t from, const Tensor& w, std::size_t tap, std::size_t taps, Dense& y,
                 std::size_t to) {
  const float* const filters = w.values<float>().data() + tap;
  for (std::int64_t c = 0; c < x.channels; ++c)
    if (const double value = x.at(from, c); value != 0)
      for (std::int64_t k = 0; k < y.channels; ++k)
        y.at(to, k) += double{filters[static_cast<std::size_t>(k * x.channels + c) * taps]} * value;
}

/// The dense convolution, cell by cell and tap by tap: cells gather their window's inputs or, with `scatter`, inputs
/// add to their cells. A cell is a site if its window contains one; for a submanifold convolution if x has one.
Dense convolve(const Geometry& g, const Dense& x, const Tensor& w, const Ints& out, bool scatter) {
  Dense y(g.images, out, w.shape()[0]);
  std::size_t taps = 1;
  for (const std::int64_t dim : g.kernel) taps *= static_cast<std::size_t>(dim);
  Site site(1 + g.dims), other(1 + g.dims);
  for (std::int64_t image = 0; image < g.images; ++image)
    for_each_cell(scatter ? x.size : out, [&](const Ints& at) {
      site[0] = image;
      std::copy(at.begin(), at.end(), site.begin() + 1);
      std::size_t tap = 0;
      for_each_cell(g.kernel, [&](const Ints& offset) {
        g.through(site, offset, other);
        if (scatter ? y.inside(other) : x.inside(other)) {
          const std::size_t from = x.cell(scatter ? site : other), to = y.cell(scatter ? other : site);
          add_product(x, from, w, tap, taps, y, to);
          if (x.is_site[from] && g.kind != "submanifold") y.is_site[to] = true;
        }
        ++tap;
      });
    });
  if (g.kind == "submanifold") y.is_site = x.is_site;
  return y;
}

/// Every kernel's results for a case on one and two threads, or in each configuration on a device: the same bits,
/// within its tolerance of y at the sites, with zeros in later rows.
void check_conv(const OpCase& c, const std::vector<Site>& sites, const Dense& exact, const std::string& where) {
  const std::shared_ptr<const Op> op = make_op(c);
  const std::vector<InputInfo> infos = infos_of(c.inputs, c.constant);
  const Problem problem(op, infos);
  double squares = 0;
  for (const Site& site : sites)
    for (std::int64_t k = 0; k < exact.channels; ++k) squares += std::pow(exact.at(exact.cell(site), k), 2);
  // At least the scale of typical sums of C products of such data: a single output may be small by chance.
  const auto outputs = static_cast<double>(sites.size()) * static_cast<double>(exact.channels);
  const double rms = std::max(std::sqrt(static_cast<double>(c.inputs[0].shape()[1])),
                              sites.empty() ? 0 : std::sqrt(squares / outputs));
  std::map<std::string_view, std::vector<float>> first;
  const OpRunner& runner = op_runner();
  for (const Kernel* kernel : kernels_of("SparseConv", runner.device()))
    for_each_call(runner, problem, *kernel, 2, [&](const Call& call) {
      const Tensor y = run_between_guards(runner, call, c.inputs, where)[0];
      const std::vector<float> got(y.values<float>().begin(), y.values<float>().end());
      const auto [known, added] = first.emplace(kernel->name(), got);
      CHECK_MESSAGE((got.empty() || std::memcmp(known->second.data(), got.data(), got.size() * sizeof(float)) == 0),
                    where, ": ", call.str(), " has other bits on two threads, or cut otherwise");
      double worst = 0;
      std::size_t i = 0;
      for (const Site& site : sites)
        for (std::int64_t k = 0; k < exact.channels; ++k)
          worst = larger_error(worst, std::abs(double{got[i++]} - exact.at(exact.cell(site), k)));
      CHECK_MESSAGE(worst <= call.candidate.tolerance * rms, where, ": ", call.str(), " errs by ", worst, " of ", rms);
      CHECK_MESSAGE(
          std::all_of(got.begin() + static_cast<std::ptrdiff_t>(i), got.end(), [](float v) { return v == 0; }), where,
          ": rows behind the sites");
    });
  CHECK_MESSAGE(first.size() >= 2, where);
}

/// A rulebook's pairs must equal those found by loops over taps and sites.
void check_pairs(const Geometry& g, const Tensor& book, const std::vector<Site>& in, const std::vector<Site>& out,
                 const std::string& where) {
  std::vector<std::int32_t> begins{0}, ins, outs;
  const auto last = static_cast<std::size_t>(Shape(std::span<const std::int64_t>(g.kernel)).elems());
  std::size_t tap = 0;
  Site reached(1 + g.dims);
  for_each_cell(g.kernel, [&](const Ints& offset) {
    if (g.kind == "submanifold" && tap++ >= last / 2) return;
    const bool forwards = g.kind == "transposed";
    const std::vector<Site>&from = forwards ? in : out, &to = forwards ? out : in;
    for (std::size_t i = 0; i < from.size(); ++i) {
      g.through(from[i], offset, reached);
      const auto found = std::lower_bound(to.begin(), to.end(), reached);  // sites are in order
      if (found == to.end() || *found != reached) continue;
      (forwards ? ins : outs).push_back(static_cast<std::int32_t>(i));
      (forwards ? outs : ins).push_back(static_cast<std::int32_t>(found - to.begin()));
    }
    begins.push_back(static_cast<std::int32_t>(ins.size()));
  });
  std::vector<std::int32_t> wanted{static_cast<std::int32_t>(in.size()), static_cast<std::int32_t>(out.size())};
  wanted.insert(wanted.end(), begins.begin(), begins.end());
  const auto room = (static_cast<std::size_t>(book.elems()) - wanted.size()) / 2;
  REQUIRE(ins.size() <= room);
  ins.resize(room, -1);
  outs.resize(room, -1);
  wanted.insert(wanted.end(), ins.begin(), ins.end());
  wanted.insert(wanted.end(), outs.begin(), outs.end());
  const auto got = book.values<std::int32_t>();
  CHECK_MESSAGE(std::equal(got.begin(), got.end(), wanted.begin(), wanted.end()), where, ": other pairs");
}

OpCase conv_of(const char* kind, Tensor x, const Tensor& book, const Tensor& w, const Tensor& sites) {
  return {.op = "SparseConv",
          .domain = "lenslet",
          .attributes = {{"kind", std::string(kind)}},
          .inputs = {std::move(x), book, w, sites},
          .constant = {2}};
}

void check_drawn(unsigned seed) {
  std::mt19937 random(seed);
  const Geometry g = draw_geometry(random);
  const std::string where = fmt::format("seed {}: {}", seed, g.str());
  const double fill = std::uniform_real_distribution<double>(-0.1, 1.1)(random);
  const std::vector<Site> sites = draw_sites(random, g.images, g.size, std::clamp(fill * fill, 0.0, 1.0),
                                             std::uniform_int_distribution<std::int64_t>(-1, 2)(random));
  const auto bound =
      static_cast<std::int64_t>(sites.size()) + std::uniform_int_distribution<std::int64_t>(0, 4)(random);
  const Tensor indices = indices_of(sites, bound, g.dims);
  const Tensor x = features_of(sites.size(), bound, g.channels, seed);
  std::vector<std::int64_t> dims{g.filters, g.channels};
  dims.insert(dims.end(), g.kernel.begin(), g.kernel.end());
  const Tensor w = random_f32(Shape(std::span<const std::int64_t>(dims)), seed + 1);

  Dense dense(g.images, g.size, g.channels);
  dense.put(sites, x.values<float>().data());
  const Dense exact = convolve(g, dense, w, g.out, g.kind == "transposed");
  std::vector<Site> out_sites;
  for (std::int64_t image = 0; image < g.images; ++image)
    for_each_cell(g.out, [&](const Ints& at) {
      Site site{image};
      site.insert(site.end(), at.begin(), at.end());
      if (exact.is_site[exact.cell(site)]) out_sites.push_back(site);
    });

  const bool submanifold = g.kind == "submanifold";
  const OpCase rulebook{.op = "SparseRulebook",
                        .domain = "lenslet",
                        .attributes = g.attributes(),
                        .inputs = {indices},
                        .outputs = submanifold ? 1U : 2U};
  const std::shared_ptr<const Op> op = make_op(rulebook);
  const std::vector<InputInfo> infos = infos_of(rulebook.inputs, {});
  const Problem problem(op, infos);
  std::vector<Tensor> book;
  for_each_call(cpu_op_runner(), problem, *kernels_of("SparseRulebook", DeviceKind::cpu)[0], 2, [&](const Call& call) {
    book = run_between_guards(cpu_op_runner(), call, rulebook.inputs, where);
    check_pairs(g, book[0], sites, out_sites, where);
    if (submanifold) return;
    const Tensor wanted = indices_of(out_sites, book[1].shape()[0], g.dims);
    CHECK_MESSAGE((wanted.bytes() == 0 || std::memcmp(book[1].data(), wanted.data(), wanted.bytes()) == 0), where,
                  ": other sites");
  });

  check_conv(conv_of(submanifold ? "submanifold" : "regular", x, book[0], w, submanifold ? Tensor() : book[1]),
             out_sites, exact, where);
  if (g.kind != "regular") return;
  // Back to the sites of the inputs: dense, the transposed convolution at those cells.
  const Tensor z = features_of(out_sites.size(), book[1].shape()[0], g.channels, seed + 2);
  Dense of_z(g.images, g.out, g.channels);
  of_z.put(out_sites, z.values<float>().data());
  check_conv(conv_of("inverse", z, book[0], w, indices), sites, convolve(g, of_z, w, g.size, true), where + " inverse");
}

}  // namespace

TEST_CASE("sparse/drawn") {
  const unsigned first = random_seed() % 1'000'000'000U;
  // A device's memory blocks are allocated anew for each run.
  const int count = op_runner().device() == DeviceKind::cpu ? drawn : std::min(drawn, 300);
  for (int i = 0; i < count; ++i) check_drawn(first + static_cast<unsigned>(3 * i));
}

}  // namespace lenslet::test
