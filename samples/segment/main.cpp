// segment MODEL.onnx PHOTO OUT.png: colours a photo by what is where, with a network that scores classes: output
// [1,classes,h,w], as torchvision's segmentation networks give it.
#include <lenslet/runner.h>

#include <array>
#include <cstdio>
#include <map>

#include "../picture.h"

namespace {

// PASCAL VOC's colours: the bits of the class, three at a time, from the top of red, green and blue down.
std::array<int, 3> class_colour(std::int64_t number) {
  std::array<int, 3> colour{};
  for (int bit = 7; bit >= 0; --bit)
    for (int& channel : colour) {
      channel |= static_cast<int>(number & 1) << bit;
      number >>= 1;
    }
  return colour;
}

// The class of each pixel of scores[classes][pixels].
std::vector<std::int64_t> best_classes(std::span<const float> scores, std::int64_t classes) {
  std::vector<std::int64_t> best(scores.size() / static_cast<std::size_t>(classes), 0);
  for (std::int64_t c = 1; c < classes; ++c)
    for (std::size_t i = 0; i < best.size(); ++i)
      if (scores[static_cast<std::size_t>(c) * best.size() + i] >
          scores[static_cast<std::size_t>(best[i]) * best.size() + i])
        best[i] = c;
  return best;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: segment MODEL.onnx PHOTO OUT.png\n"), 2;
  Picture photo = read_picture(argv[2]);
  const lenslet::Model model = lenslet::Model::load(argv[1]);
  const lenslet::PortInfo& port = model.inputs().at(0);
  if (port.dims.size() != 4) return std::fprintf(stderr, "segment: the input %s is no image\n", port.str().c_str()), 1;

  // How torchvision's were trained: pixels of 0 to 1, then ImageNet's mean and deviation. The photo is stretched to the
  // network's height and width, or goes in as it is where they are free.
  lenslet::ImageSpec spec;
  spec.height = port.dims[2] > 0 ? port.dims[2] : photo.height;
  spec.width = port.dims[3] > 0 ? port.dims[3] : photo.width;
  spec.resize = lenslet::ImageSpec::Resize::stretch;
  spec.crop = lenslet::ImageSpec::Crop::none;
  spec.scale = 1.0 / 255;
  spec.mean = {0.485, 0.456, 0.406};
  spec.std = {0.229, 0.224, 0.225};

  lenslet::PlanOptions options;
  options.input_shapes = {{port.name, lenslet::Shape{1, 3, spec.height, spec.width}}};
  lenslet::Runner runner(model, options);
  runner.load_image(0, photo.view(), spec);
  const lenslet::Tensor scores = runner.run_loaded()[0].to_dtype(lenslet::DType::f32);
  const lenslet::Shape& shape = scores.shape();
  if (shape.rank() != 4) return std::fprintf(stderr, "segment: the output %s is no map\n", shape.str().c_str()), 1;
  const std::vector<std::int64_t> classes = best_classes(scores.values<float>(), shape[1]);

  std::map<std::int64_t, std::int64_t> pixels;
  for (std::int64_t y = 0; y < photo.height; ++y)
    for (std::int64_t x = 0; x < photo.width; ++x) {
      const std::int64_t row = y * shape[2] / photo.height, column = x * shape[3] / photo.width;
      const std::int64_t best = classes[static_cast<std::size_t>(row * shape[3] + column)];
      ++pixels[best];
      for (std::size_t c = 0; c < 3; ++c)
        photo.at(y, x)[c] = static_cast<std::uint8_t>((photo.at(y, x)[c] + class_colour(best)[c]) / 2);
    }
  for (const auto& [best, count] : pixels)
    std::printf("class %3lld  %5.1f%%\n", static_cast<long long>(best),
                100.0 * static_cast<double>(count) / static_cast<double>(photo.height * photo.width));
  write_png(argv[3], photo);
} catch (const std::exception& error) {
  return std::fprintf(stderr, "segment: %s\n", error.what()), 1;
}
