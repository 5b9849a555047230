// lidar MODEL.onnx SCAN.bin OUT.png: a scan, float32 points as KITTI and nuScenes store them, through a sparse network
// that ends in a dense map [1,channels,z,y,x], as SECOND's middle encoder does (docs/sparse.md says how to make one);
// drawn from above: grey where the network sees something, the brighter the more (its root), x up as the car drives.
#include <lenslet/runner.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <iterator>

#include "../picture.h"

namespace {

std::vector<float> read_floats(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) throw std::runtime_error(file + ": cannot be opened");
  const std::vector<char> bytes{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (bytes.size() % sizeof(float) != 0) throw std::runtime_error(file + ": no list of float32");
  std::vector<float> floats(bytes.size() / sizeof(float));
  std::copy_n(bytes.data(), floats.size() * sizeof(float), reinterpret_cast<char*>(floats.data()));
  return floats;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: lidar MODEL.onnx SCAN.bin OUT.png\n"), 2;
  const std::vector<float> floats = read_floats(argv[2]);
  const lenslet::Model model = lenslet::Model::load(argv[1]);
  const lenslet::PortInfo& port = model.inputs().at(0);
  if (port.dims.size() != 2 || port.dims[1] < 3)
    return std::fprintf(stderr, "lidar: the input %s is no list of points\n", port.str().c_str()), 1;
  const std::int64_t points = static_cast<std::int64_t>(floats.size()) / port.dims[1];
  if (points * port.dims[1] != static_cast<std::int64_t>(floats.size()))
    return std::fprintf(stderr, "lidar: %s: no whole number of points of %lld float32\n", argv[2],
                        static_cast<long long>(port.dims[1])),
           1;

  // A program that gets scan after scan plans once, for the most points that may come, and fills up with NaN.
  lenslet::Tensor input(lenslet::DType::f32, {points, port.dims[1]});
  std::copy_n(floats.begin(), input.values<float>().size(), input.values<float>().begin());
  lenslet::PlanOptions options;
  options.input_shapes = {{port.name, input.shape()}};
  lenslet::Runner runner(model, options);
  const lenslet::Tensor map = runner.run(input)[0].to_dtype(lenslet::DType::f32);
  const lenslet::Shape& shape = map.shape();
  if (shape.rank() != 5 || shape[0] != 1)
    return std::fprintf(stderr, "lidar: the output %s is no map [1,channels,z,y,x]\n", shape.str().c_str()), 1;

  const std::int64_t planes = shape[1] * shape[2], height = shape[3], width = shape[4];
  std::vector<double> seen(static_cast<std::size_t>(height * width));
  for (std::int64_t plane = 0; plane < planes; ++plane)
    for (std::size_t i = 0; i < seen.size(); ++i)
      seen[i] =
          std::max(seen[i], std::abs(double{map.values<float>()[static_cast<std::size_t>(plane) * seen.size() + i]}));
  const double most = *std::max_element(seen.begin(), seen.end());

  Picture picture{width, height, std::vector<std::uint8_t>(3 * seen.size())};
  std::int64_t occupied = 0;
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      const double value = seen[static_cast<std::size_t>(y * width + x)];
      if (!(value > 0)) continue;
      ++occupied;
      std::fill_n(picture.at(width - 1 - x, height - 1 - y), 3, to_byte(55 + 200 * std::sqrt(value / most)));
    }
  std::printf("%lld points, %lld of %lld cells occupied\n", static_cast<long long>(points),
              static_cast<long long>(occupied), static_cast<long long>(height * width));
  write_png(argv[3], picture);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "lidar: %s\n", error.what()), 1;
}
