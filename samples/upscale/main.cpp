// upscale MODEL.onnx PHOTO OUT.png: a photo three times as large, by PyTorch's super-resolution network.
#include <lenslet/runner.h>

#include <cstdio>

#include "../picture.h"

namespace {

// JPEG's YCbCr, all of 0 to 255: the eye sees detail in Y, so the network makes only that one.
void to_ycbcr(std::uint8_t* pixel) {
  const double r = pixel[0], g = pixel[1], b = pixel[2];
  pixel[0] = to_byte(0.299 * r + 0.587 * g + 0.114 * b);
  pixel[1] = to_byte(128 - 0.168736 * r - 0.331264 * g + 0.5 * b);
  pixel[2] = to_byte(128 + 0.5 * r - 0.418688 * g - 0.081312 * b);
}

void to_rgb(std::uint8_t* pixel, double y) {
  const double cb = pixel[1] - 128.0, cr = pixel[2] - 128.0;
  pixel[0] = to_byte(y + 1.402 * cr);
  pixel[1] = to_byte(y - 0.344136 * cb - 0.714136 * cr);
  pixel[2] = to_byte(y + 1.772 * cb);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 4) return std::fprintf(stderr, "usage: upscale MODEL.onnx PHOTO OUT.png\n"), 2;
  Picture photo = read_picture(argv[2]);
  for (std::size_t i = 0; i < photo.pixels.size(); i += 3) to_ycbcr(&photo.pixels[i]);

  const lenslet::Model model = lenslet::Model::load(argv[1]);
  lenslet::PlanOptions options;  // the network takes any height and width: a plan is for one
  options.input_shapes = {{model.inputs().at(0).name, lenslet::Shape{1, 1, photo.height, photo.width}}};
  lenslet::Runner runner(model, options);
  lenslet::Tensor luma(lenslet::DType::f32, options.input_shapes[0].second);
  for (std::size_t i = 0; i < luma.values<float>().size(); ++i)
    luma.values<float>()[i] = static_cast<float>(photo.pixels[3 * i]) / 255;
  const lenslet::Tensor& fine = runner.run(luma)[0];  // [1,1,3H,3W]
  if (fine.shape().rank() != 4 || fine.shape()[1] != 1)
    return std::fprintf(stderr, "upscale: %s: wanted an output [1,1,H,W]\n", argv[1]), 1;

  // Colour is enlarged as it is.
  lenslet::ImageSpec spec;
  spec.height = fine.shape()[2];
  spec.width = fine.shape()[3];
  spec.resize = lenslet::ImageSpec::Resize::stretch;
  spec.filter = lenslet::ImageSpec::Filter::bicubic;
  spec.crop = lenslet::ImageSpec::Crop::none;
  Picture large{spec.height, spec.width, lenslet::resize_and_crop(photo.view(), spec)};
  for (std::size_t i = 0; i < fine.values<float>().size(); ++i)
    to_rgb(&large.pixels[3 * i], 255.0 * static_cast<double>(fine.values<float>()[i]));
  write_png(argv[3], large);
  std::printf("%lld x %lld -> %lld x %lld\n", static_cast<long long>(photo.width), static_cast<long long>(photo.height),
              static_cast<long long>(large.width), static_cast<long long>(large.height));
} catch (const std::exception& error) {
  return std::fprintf(stderr, "upscale: %s\n", error.what()), 1;
}
