#include "tests/exec/load_image_cases.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "lenslet/image.h"
#include "lenslet/runner.h"
#include "runtime/exec/model_impl.h"
#include "tests/exec/small_net.h"
#include "tests/tensors.h"

namespace lenslet::test {
namespace {

struct Photo {
  std::vector<std::uint8_t> pixels;
  std::int64_t height, width, channels;
  ImageView view() const { return {pixels.data(), height, width, channels}; }
};

Photo random_photo(std::int64_t height, std::int64_t width, std::int64_t channels, unsigned seed) {
  std::mt19937 random(seed);
  Photo photo{std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * channels)), height, width, channels};
  for (std::uint8_t& pixel : photo.pixels) pixel = static_cast<std::uint8_t>(random());
  return photo;
}

// For small_net() and nhwc_net().
ImageSpec spec_for(bool nhwc) {
  ImageSpec spec;
  spec.height = 17;
  spec.width = 19;
  spec.nhwc = nhwc;
  spec.resize_size = 24;
  spec.scale = 1.0 / 255;
  spec.mean = {0.485, 0.456, 0.406};
  spec.std = {0.229, 0.224, 0.225};
  return spec;
}

// x[N,17,19,3] -> Transpose -> Conv -> Relu
Graph nhwc_net() {
  using Integers = std::vector<std::int64_t>;
  Graph graph;
  graph.name = "nhwc";
  const ValueId x = add_input(graph, {17, 19, 3});
  const ValueId planes = add_node(graph, "Transpose", {x}, {{"perm", Integers{0, 3, 1, 2}}});
  const ValueId weights = add_weights(graph, "w", {8, 3, 3, 3}, 0.3F, 1);
  add_output(graph, add_node(graph, "Relu", {add_node(graph, "Conv", {planes, weights})}));
  return graph;
}

PlanOptions on(const std::string& device, std::int64_t batch) {
  PlanOptions options;
  options.device = device;
  options.batch = batch;
  options.threads = 1;
  return options;
}

Tensor zeros(Shape shape) {
  Tensor tensor(DType::f32, shape);
  std::memset(tensor.data(), 0, tensor.bytes());
  return tensor;
}

/// The same network with another input type, as the loader reads it from a file.
Graph with_input(Graph graph, DType dtype) {
  graph.value(graph.inputs[0]).dtype = graph.input_ports[0].dtype = dtype;
  return graph;
}

}  // namespace

void check_loaded_photos(const std::string& device) {
  // Large ones before small ones: staging memory is larger than needed, and grows again.
  const std::pair<std::int64_t, std::int64_t> sizes[] = {{600, 811}, {17, 19}, {40, 1000}, {31, 29}, {900, 700}};
  for (const bool nhwc : {false, true})
    for (const std::int64_t batch : {1, 3, 8}) {
      CAPTURE(nhwc);
      CAPTURE(batch);
      const Model model = make_model(nhwc ? nhwc_net() : small_net());
      Runner reference(model, on(device, batch)), loaded(model, on(device, batch));
      for (unsigned round = 0; round < 5; ++round) {
        CAPTURE(round);
        ImageSpec spec = spec_for(nhwc);
        spec.filter = round % 2 == 0 ? ImageSpec::Filter::bilinear : ImageSpec::Filter::bicubic;
        spec.channels = round == 1 ? ImageSpec::Channels::bgr : ImageSpec::Channels::rgb;
        using Resize = ImageSpec::Resize;
        spec.resize = round == 2 ? Resize::stretch : round == 3 ? Resize::fit : Resize::shorter_side;
        if (round == 3) spec.pad = nhwc ? ImageSpec::Pad::top_left : ImageSpec::Pad::center;
        spec.pad_color = {114, 20, 250};
        Tensor input(DType::f32, loaded.plan().inputs[0].second);
        for (std::int64_t i = 0; i < batch; ++i) {
          const std::int64_t slot = batch - 1 - i;
          const auto& [height, width] = sizes[(round + static_cast<std::size_t>(i)) % std::size(sizes)];
          Photo photo = random_photo(height, width, i % 3 == 2 ? 1 : 3, 100 * round + static_cast<unsigned>(i));
          to_input(photo.view(), spec, input, slot);
          loaded.load_image(0, photo.view(), spec, slot);
          std::fill(photo.pixels.begin(), photo.pixels.end(), std::uint8_t{0});  // load_image no longer needs it
        }
        if (round == 4) {
          int seen = 0;
          loaded.set_observer([&](const LayerEvent& event) {
            for (std::size_t i = 0; i < event.inputs.size(); ++i)
              if (event.info->inputs[i] == "x") {
                ++seen;
                CHECK(equal(event.inputs[i], input));
              }
          });
          CHECK(equal(loaded.run_loaded()[0], reference.run(input)[0]));
          CHECK(seen > 0);
          continue;
        }
        CHECK(equal(loaded.run_loaded()[0], reference.run(input)[0]));
        CHECK(equal(loaded.run(input)[0], reference.run(input)[0]));
      }
    }
}

void check_loaded_types(const std::string& device) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f64})
    for (const bool nhwc : {false, true}) {
      CAPTURE(std::string(to_string(dtype)));
      const Model model = make_model(with_input(nhwc ? nhwc_net() : small_net(), dtype));
      REQUIRE(model.inputs()[0].dtype == dtype);
      Runner reference(model, on(device, 2)), loaded(model, on(device, 2));
      const ImageSpec spec = spec_for(nhwc);
      const Photo photo = random_photo(50, 61, 3, 7), gray = random_photo(90, 40, 1, 8);
      Tensor floats(DType::f32, loaded.plan().inputs[0].second), input(dtype, floats.shape());
      for (const auto& [slot, image] : {std::pair{0, &photo}, {1, &gray}}) {
        to_input(image->view(), spec, floats, slot);
        to_input(image->view(), spec, input, slot);
        loaded.load_image(0, image->view(), spec, slot);
      }
      CHECK(equal(input, floats.to_dtype(dtype)));
      CHECK(equal(loaded.run_loaded()[0], reference.run(input)[0]));
    }
}

void check_partly_loaded_batches(const std::string& device) {
  const Model model = make_model(small_net());
  Runner reference(model, on(device, 3)), loaded(model, on(device, 3));
  const ImageSpec spec = spec_for(false);
  const Photo first = random_photo(50, 60, 3, 1), second = random_photo(200, 300, 3, 2);
  for (std::int64_t slot = 0; slot < 3; ++slot) loaded.load_image(0, second.view(), spec, slot);
  loaded.run_loaded();

  // The others are zeros, not the previous batch; an image that is loaded again replaces the first.
  Tensor input = zeros({3, 3, 17, 19});
  to_input(first.view(), spec, input, 1);
  loaded.load_image(0, second.view(), spec, 1);
  loaded.load_image(0, first.view(), spec, 1);
  const Tensor expected = reference.run(input)[0].clone();
  CHECK(equal(loaded.run_loaded()[0], expected));

  // A refused image leaves the loaded one in place.
  loaded.load_image(0, first.view(), spec, 1);
  ImageSpec wrong = spec;
  wrong.mean = {0, 1};
  CHECK(error_of([&] { loaded.load_image(0, second.view(), wrong, 1); }).kind() == ErrorKind::invalid_argument);
  wrong = spec;
  wrong.resize_size = 10;
  CHECK(error_of([&] { loaded.load_image(0, second.view(), wrong, 1); }).kind() == ErrorKind::invalid_argument);
  CHECK(equal(loaded.run_loaded()[0], expected));
}

void check_refused_loads(const std::string& device) {
  const Model model = make_model(small_net());
  Runner runner(model, on(device, 2));
  const ImageSpec spec = spec_for(false);
  const Photo photo = random_photo(40, 50, 3, 1);
  const auto refuses = [](const auto& call, const std::string& text) {
    const Error error = error_of(call);
    CAPTURE(std::string(error.what()));
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(std::string(error.what()).find(text) != std::string::npos);
  };
  const auto load = [&](std::size_t input, const ImageView& image, const ImageSpec& as, std::int64_t index) {
    return [&runner, input, image, as, index] { runner.load_image(input, image, as, index); };
  };
  const auto run_loaded = [&] { runner.run_loaded(); };
  refuses(run_loaded, "input 'x'");
  refuses(load(1, photo.view(), spec, 0), "no input 1");
  refuses(load(0, photo.view(), spec, 2), "no image 2");
  refuses(load(0, photo.view(), spec, -1), "no image -1");
  refuses(load(0, {}, spec, 0), "no pixels");
  refuses(load(0, photo.view(), spec_for(true), 0), "the input is [2,3,17,19]");
  ImageSpec unresized = spec;
  unresized.resize = ImageSpec::Resize::none;
  refuses(load(0, random_photo(5, 5, 3, 1).view(), unresized, 0), "5 x 5");
  refuses(run_loaded, "input 'x'");  // none of these was loaded

  // Every run consumes the loaded images.
  runner.load_image(0, photo.view(), spec, 0);
  CHECK_NOTHROW(runner.run_loaded());
  refuses(run_loaded, "input 'x'");
  runner.load_image(0, photo.view(), spec, 0);
  CHECK_NOTHROW(runner.run(zeros({2, 3, 17, 19})));
  refuses(run_loaded, "input 'x'");

  // An input that was planned for one value cannot take an image.
  Graph graph;
  graph.name = "reshape";
  const ValueId x = add_input(graph, {3, 17, 19});
  const ValueId shape = graph.add_value("shape");
  graph.value(shape).dtype = DType::i64;
  graph.inputs.push_back(shape);
  graph.input_ports.push_back({"shape", DType::i64, {2}, {""}});
  add_output(graph, add_node(graph, "Relu", {add_node(graph, "Reshape", {x, shape})}));
  const Model reshape = make_model(std::move(graph));
  PlanOptions options = on(device, 1);
  options.input_values = {{"shape", Tensor::of<std::int64_t>({2}, {3, 17 * 19})}};
  Runner both(reshape, options);
  refuses([&] { both.load_image(1, photo.view(), spec); }, "input 'shape'");
  refuses([&] { both.run_loaded(); }, "input 'x'");
  Tensor input(DType::f32, {1, 3, 17, 19});
  to_input(photo.view(), spec, input);
  both.load_image(0, photo.view(), spec);
  const Tensor output = both.run_loaded()[0].clone();
  const Tensor inputs[] = {input, options.input_values[0].second};
  CHECK(equal(output, both.run(inputs)[0]));
}

}  // namespace lenslet::test
