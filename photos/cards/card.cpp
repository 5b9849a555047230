#include "lenslet/card.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lenslet/error.h"
#include "photos/cards/card_json.h"
#include "photos/dtype_convert.h"
#include "photos/pictures/read_file.h"

namespace lenslet {

using namespace photos;

namespace {

constexpr std::uintmax_t max_card_bytes = 1 << 20, max_labels_bytes = 16 << 20;
constexpr std::int64_t max_input_side = 16384;

using Channels = ImageSpec::Channels;
using Resize = ImageSpec::Resize;
using Filter = ImageSpec::Filter;
using Crop = ImageSpec::Crop;
using Pad = ImageSpec::Pad;
using Form = BoxOutput::Form;

void read_input(CardObject input, Card& card) {
  card.input = input.text("name", {});
  card.spec.nhwc = input.choice("layout", false, {{"NCHW", false}, {"NHWC", true}});
  card.spec.channels = input.choice("channels", Channels::rgb,
                                    {{"RGB", Channels::rgb}, {"BGR", Channels::bgr}, {"gray", Channels::gray}});
  if (!input.has("size")) input.fail("size", "is missing: [height, width]");
  const std::vector<double> size = input.numbers("size", {});
  const auto is_side = [](double side) { return side >= 1 && side <= max_input_side && side == double(int(side)); };
  if (size.size() != 2 || !std::all_of(size.begin(), size.end(), is_side))
    input.fail("size", fmt::format("has to be [height, width], each 1 to {}", max_input_side));
  card.spec.height = static_cast<std::int64_t>(size[0]);
  card.spec.width = static_cast<std::int64_t>(size[1]);
  input.refuse_unknown();
}

void read_pad(CardObject& whole, ImageSpec& spec) {
  if (!whole.has("pad")) return;
  CardObject pad = whole.object("pad");
  if (!pad.has("position")) pad.fail("position", "is missing: center or top_left");
  spec.pad = pad.choice("position", Pad::center, {{"center", Pad::center}, {"top_left", Pad::top_left}});
  const std::vector<double> color = pad.numbers("color", {});
  const auto is_byte = [](double value) { return value >= 0 && value <= 255 && value == double(int(value)); };
  if (color.size() != 3 || !std::all_of(color.begin(), color.end(), is_byte))
    pad.fail("color", "has to be [R, G, B], each a whole number of 0 to 255");
  for (std::size_t c = 0; c < 3; ++c) spec.pad_color[c] = static_cast<std::uint8_t>(color[c]);
  pad.refuse_unknown();
}

void read_resize(CardObject& whole, Card& card) {
  ImageSpec& spec = card.spec;
  const Crop crop_default = whole.has("resize") ? Crop::none : Crop::center;
  CardObject resize = whole.object("resize");
  spec.resize = Resize::none;
  if (whole.has("resize")) {
    if (!resize.has("mode")) resize.fail("mode", "is missing: shorter_side, longer_side, fit or stretch");
    spec.resize = resize.choice("mode", Resize::stretch,
                                {{"shorter_side", Resize::shorter_side},
                                 {"longer_side", Resize::longer_side},
                                 {"fit", Resize::fit},
                                 {"stretch", Resize::stretch}});
  }
  const bool shorter = spec.resize == Resize::shorter_side;
  spec.crop =
      whole.choice("crop", shorter ? Crop::center : crop_default, {{"center", Crop::center}, {"none", Crop::none}});
  spec.filter =
      resize.choice("filter", Filter::bilinear,
                    {{"bilinear", Filter::bilinear}, {"bicubic", Filter::bicubic}, {"nearest", Filter::nearest}});
  spec.antialias = resize.boolean("antialias", true);
  card.draft = resize.boolean("draft", false);
  read_pad(whole, spec);
  const bool needs_pad = spec.resize == Resize::longer_side || spec.resize == Resize::fit;
  if (needs_pad) {
    spec.round_down = resize.boolean("round_down", false);
    if (spec.pad == Pad::none)
      whole.fail("pad", "is missing: resize.mode longer_side and fit leave room beside most photos");
  } else if (spec.resize != Resize::none && spec.pad != Pad::none) {
    whole.fail("pad", "contradicts resize.mode shorter_side and stretch, which leave no room");
  }
  const std::int64_t longer = std::max(spec.height, spec.width);
  if (spec.resize == Resize::longer_side) {
    if (!resize.has("size")) resize.fail("size", "is missing: the length of the longer side");
    spec.resize_size = resize.integer("size", 0);
    const std::int64_t most = spec.crop == Crop::center ? max_input_side : std::min(spec.height, spec.width);
    if (spec.resize_size < 1 || spec.resize_size > most)
      resize.fail("size", fmt::format("is {}, which contradicts input.size: without a crop, photos of all proportions "
                                      "need 1 to {}",
                                      spec.resize_size, most));
  } else if (shorter) {
    if (!resize.has("size")) resize.fail("size", "is missing: the length of the shorter side");
    spec.resize_size = resize.integer("size", 0);
    if (spec.resize_size < longer || spec.resize_size > max_input_side)
      resize.fail("size", fmt::format("is {}, which contradicts input.size: a crop needs {} to {}", spec.resize_size,
                                      longer, max_input_side));
    if (spec.crop == Crop::none)
      whole.fail("crop", "is none, which contradicts resize.mode shorter_side: only square photos would fit");
  } else if (resize.has("size")) {
    const std::int64_t size = resize.integer("size", 0);
    if (size != spec.height || size != spec.width)
      resize.fail(
          "size",
          fmt::format("is {}, which contradicts resize.mode stretch and fit: photos are resized to input.size", size));
  }
  resize.refuse_unknown();
}

void read_normalize(CardObject normalize, ImageSpec& spec) {
  const std::size_t channels = spec.channels == Channels::gray ? 1 : 3;
  spec.scale = normalize.number("scale", 1.0);
  spec.mean = normalize.numbers("mean", std::vector<double>(channels, 0.0));
  spec.std = normalize.numbers("std", std::vector<double>(channels, 1.0));
  if (spec.scale == 0) normalize.fail("scale", "is 0");
  if (spec.mean.size() != channels)
    normalize.fail("mean",
                   fmt::format("has {} values, which contradicts input.channels: {}", spec.mean.size(), channels));
  if (spec.std.size() != channels)
    normalize.fail("std",
                   fmt::format("has {} values, which contradicts input.channels: {}", spec.std.size(), channels));
  if (std::find(spec.std.begin(), spec.std.end(), 0.0) != spec.std.end()) normalize.fail("std", "holds a 0");
  normalize.refuse_unknown();
}

BoxOutput read_boxes(CardObject boxes, const Card& card) {
  BoxOutput read;
  if (!boxes.has("form"))
    boxes.fail("form", "is missing: boxes_scores, yolov8, yolov5, end_to_end or boxes_labels_scores");
  read.form = boxes.choice("form", Form::boxes_scores,
                           {{"boxes_scores", Form::boxes_scores},
                            {"yolov8", Form::yolov8},
                            {"yolov5", Form::yolov5},
                            {"end_to_end", Form::end_to_end},
                            {"boxes_labels_scores", Form::boxes_labels_scores}});
  const bool labels = read.form == Form::boxes_labels_scores, apart = labels || read.form == Form::boxes_scores;
  const auto name = [&](const char* field, bool wanted) {
    if (boxes.has(field) && !wanted) boxes.fail(field, "contradicts form, which has no output of its own for it");
    std::string text = boxes.text(field, {});
    if (wanted && text.empty()) boxes.fail(field, "is missing: the name of an output");
    return text;
  };
  read.boxes = name("boxes", apart);
  read.labels = name("labels", labels);
  if (apart && card.output.empty()) boxes.fail("form", "needs output.name, the output of the scores");
  read.center = boxes.choice("coordinates", read.form == Form::yolov8 || read.form == Form::yolov5,
                             {{"corners", false}, {"center", true}});
  read.normalized = boxes.boolean("normalized", false);
  boxes.refuse_unknown();
  return read;
}

KnownFile read_known_file(CardObject file) {
  KnownFile known{.name = file.text("name", {}), .sha256 = file.text("sha256", {})};
  known.bytes = static_cast<std::uintmax_t>(std::max<std::int64_t>(file.integer("bytes", 0), 0));
  if (!known.sha256.empty() &&
      (known.sha256.size() != 64 || known.sha256.find_first_not_of("0123456789abcdef") != std::string::npos))
    file.fail("sha256", "has to be 64 lower-case hexadecimal digits");
  if (known.sha256.empty() != (known.bytes == 0)) file.fail("bytes", "and sha256 belong together");
  if (known.name.empty() && known.sha256.empty()) file.fail("name", "is missing, and sha256, too");
  file.refuse_unknown();
  return known;
}

[[noreturn]] void mismatch(const std::string& message) { throw Error(ErrorKind::invalid_argument, message); }

template <typename Ports>
std::size_t find_port(const Ports& ports, const std::string& name, const char* field) {
  std::string names;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    if (ports[i].name == name) return i;
    names += (i == 0 ? "" : ", ") + ports[i].name;
  }
  mismatch(fmt::format("the card's {} is '{}', but the model has {}", field, name, names));
}

}  // namespace

Card parse_card(const std::string& text, const std::filesystem::path& file) {
  const auto json = [&] {
    try {
      return nlohmann::json::parse(text);
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorKind::invalid_argument, fmt::format("this is no JSON: {}", error.what()), file.string());
    }
  }();
  CardObject whole(json, {}, file.string());
  Card card;
  card.name = whole.text("name", {});
  card.model = whole.text("model", {});
  (void)whole.text("source", {});  // only checked: text for people
  if (const std::string labels = whole.text("labels", {}); !labels.empty()) card.labels = file.parent_path() / labels;
  if (!whole.has("input")) whole.fail("input", "is missing");
  read_input(whole.object("input"), card);
  read_resize(whole, card);
  read_normalize(whole.object("normalize"), card.spec);
  CardObject output = whole.object("output");
  card.output = output.text("name", {});
  const bool open = output.is_null("softmax");
  card.softmax = open ? std::nullopt : std::optional(output.boolean("softmax", false));
  card.class_offset = output.integer("class_offset", 0);
  if (output.has("boxes")) card.boxes = read_boxes(output.object("boxes"), card);
  if (card.boxes && card.softmax.value_or(false))
    output.fail("softmax", "is true, which contradicts output.boxes: scores are taken as they are");
  output.refuse_unknown();
  for (CardObject& known : whole.objects("files")) card.files.push_back(read_known_file(std::move(known)));
  whole.refuse_unknown();
  return card;
}

Card read_card(const std::filesystem::path& file) { return parse_card(read_file(file, max_card_bytes), file); }

std::optional<std::filesystem::path> find_card(const std::filesystem::path& model_file) {
  std::filesystem::path card = model_file;
  card.replace_extension(".card.json");
  std::error_code ignored;
  if (std::filesystem::exists(card, ignored)) return card;
  return std::nullopt;
}

namespace {

/// The model's input, if it has exactly one.
std::optional<std::size_t> only_input(const Model& model) {
  std::optional<std::size_t> only;
  for (std::size_t i = 0; i < model.inputs().size(); ++i) {
    if (model.inputs()[i].unread) continue;
    if (only) return std::nullopt;
    only = i;
  }
  return only;
}

Card assume(const Model& model) {
  Card card;
  const std::optional<std::size_t> only = only_input(model);
  if (!only) mismatch("the model has several inputs: a card has to say which one takes the photo");
  if (model.outputs().size() > 1)
    mismatch(fmt::format(
        "the model has {} outputs, so it is hardly a classifier: a card has to say which one holds the classes",
        model.outputs().size()));
  const PortInfo& input = model.inputs()[*only];
  if (input.dims.size() != 4) mismatch(fmt::format("the model's input {} is no image: a card is needed", input.str()));
  const auto is_channels = [](std::int64_t dim) { return dim == 1 || dim == 3; };
  ImageSpec& spec = card.spec;
  spec.nhwc = !is_channels(input.dims[1]) && is_channels(input.dims[3]);
  if (!spec.nhwc && !is_channels(input.dims[1]))
    mismatch(fmt::format("the model's input {} has neither 1 nor 3 channels: a card is needed", input.str()));
  const std::size_t height_axis = spec.nhwc ? 1 : 2;
  spec.height = input.dims[height_axis] > 0 ? input.dims[height_axis] : 224;
  spec.width = input.dims[height_axis + 1] > 0 ? input.dims[height_axis + 1] : 224;
  spec.scale = 1.0 / 255.0;
  if (input.dims[spec.nhwc ? 3 : 1] == 1) {
    spec.channels = Channels::gray;
    spec.resize = Resize::stretch;
    spec.crop = Crop::none;
    spec.mean = {0};
    spec.std = {1};
  } else {
    spec.resize_size = (std::max(spec.height, spec.width) * 256 + 112) / 224;
    spec.mean = {0.485, 0.456, 0.406};
    spec.std = {0.229, 0.224, 0.225};
  }
  if (!is_float(input.dtype)) {  // a model with integer inputs takes raw pixels
    spec.scale = 1;
    spec.mean.assign(spec.mean.size(), 0);
    spec.std.assign(spec.std.size(), 1);
  }
  return card;
}

}  // namespace

Card assumed_card(const Model& model) {
  try {
    return assume(model);
  } catch (const Error& error) {
    throw error.within(model.name());
  }
}

std::string describe(const ImageSpec& spec) {
  const char* channels = spec.channels == Channels::rgb ? "RGB" : spec.channels == Channels::bgr ? "BGR" : "gray";
  const char* filter = spec.filter == Filter::bilinear  ? "bilinear"
                       : spec.filter == Filter::bicubic ? "bicubic"
                                                        : "nearest";
  std::string resize = "not resized";
  if (spec.resize == Resize::shorter_side) resize = fmt::format("shorter side to {} ({})", spec.resize_size, filter);
  if (spec.resize == Resize::stretch) resize = fmt::format("stretched ({})", filter);
  if (spec.resize == Resize::longer_side) resize = fmt::format("longer side to {} ({})", spec.resize_size, filter);
  if (spec.resize == Resize::fit) resize = fmt::format("fitted ({})", filter);
  if (spec.round_down) resize += ", rounded down";
  const std::string pad = spec.pad == Pad::none
                              ? ""
                              : fmt::format(", {} in padding of [{}]", spec.pad == Pad::center ? "center" : "top left",
                                            fmt::join(spec.pad_color, ", "));
  return fmt::format("{} {}x{} {}, {}{}{}, (pixel * {:.6g} - [{:.6g}]) / [{:.6g}]", channels, spec.height, spec.width,
                     spec.nhwc ? "NHWC" : "NCHW", resize, spec.crop == Crop::center ? ", center crop" : "", pad,
                     spec.scale, fmt::join(spec.mean, ", "), fmt::join(spec.std, ", "));
}

std::string describe(const Card& card) {
  return describe(card.spec) + (card.draft ? ", JPEGs drafted (decoded at 1/2 to 1/8 where larger)" : "");
}

namespace {

BoundCard bind(const Card& card, const Model& model) {
  BoundCard bound;
  if (card.input.empty()) {
    const std::optional<std::size_t> only = only_input(model);
    if (!only) mismatch("the card's input.name is missing, and the model has several inputs");
    bound.input = *only;
  } else {
    bound.input = find_port(model.inputs(), card.input, "input.name");
  }
  const PortInfo& input = model.inputs()[bound.input];
  if (input.dims.size() != 4) mismatch(fmt::format("the model's input {} {} is no image", input.name, input.str()));
  if (input.dims[0] > 1) bound.fixed_batch = input.dims[0];
  const std::int64_t channels = card.spec.channels == Channels::gray ? 1 : 3;
  const std::size_t channel_axis = card.spec.nhwc ? 3 : 1, height_axis = card.spec.nhwc ? 1 : 2;
  const auto fits = [&](std::size_t axis, std::int64_t wanted) {
    return input.dims[axis] < 0 || input.dims[axis] == wanted;
  };
  if (!fits(channel_axis, channels))
    mismatch(fmt::format("the card's input.layout {} and {} channels contradict the model's input {}",
                         card.spec.nhwc ? "NHWC" : "NCHW", channels, input.str()));
  if (!fits(height_axis, card.spec.height) || !fits(height_axis + 1, card.spec.width))
    mismatch(fmt::format("the card's input.size [{}, {}] contradicts the model's input {}", card.spec.height,
                         card.spec.width, input.str()));

  if (model.outputs().empty()) mismatch("the model has no output");
  if (!card.output.empty()) bound.output = find_port(model.outputs(), card.output, "output.name");
  const PortInfo& output = model.outputs()[bound.output];
  bound.boxes = bound.labels = bound.output;
  if (card.boxes) {
    if (!card.boxes->boxes.empty()) bound.boxes = find_port(model.outputs(), card.boxes->boxes, "output.boxes.boxes");
    if (!card.boxes->labels.empty())
      bound.labels = find_port(model.outputs(), card.boxes->labels, "output.boxes.labels");
    bound.classes = -1;
    return bound;
  }
  bound.classes = output.dims.size() < 2 ? -1 : 1;
  for (std::size_t axis = 1; axis < output.dims.size() && bound.classes > 0; ++axis)
    bound.classes = output.dims[axis] < 0 ? -1 : bound.classes * output.dims[axis];
  if (bound.classes >= 0 && (card.class_offset >= bound.classes || card.class_offset < -1'000'000))
    mismatch(fmt::format("the card's output.class_offset {} contradicts the model's output {}", card.class_offset,
                         output.str()));

  const std::string op = model.output_op(bound.output);
  const bool made = op == "Softmax" || op == "Sigmoid" || op == "HardSigmoid" || op == "Hardmax";
  bound.softmax = card.softmax.value_or(!made);  // Softmax of a LogSoftmax output gives the probabilities
  bound.probabilities = bound.softmax || made;
  if (bound.softmax && made)
    bound.remark = fmt::format(
        "the card's output.softmax is true, but a {} of the model makes the output: it is "
        "followed by a softmax all the same",
        op);
  if (!bound.probabilities)
    bound.remark =
        "the card's output.softmax is false, but the model makes no probabilities: scores are shown as they are";
  return bound;
}

}  // namespace

BoundCard bind_card(const Card& card, const Model& model) {
  try {
    return bind(card, model);
  } catch (const Error& error) {
    throw error.within(model.name());
  }
}

Card bound_to(const Model& model, Card card) {
  const BoundCard bound = bind_card(card, model);
  card.input = model.inputs()[bound.input].name;
  card.output = model.outputs()[bound.output].name;
  card.softmax = bound.softmax;
  return card;
}

std::vector<std::string> read_labels(const std::filesystem::path& file, std::int64_t classes) {
  const std::string text = read_file(file, max_labels_bytes);
  std::vector<std::string> labels;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string line = text.substr(at, end - at);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    for (char& c : line)  // a label must not move the terminal's cursor
      if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
    labels.push_back(std::move(line));
    at = end + 1;
  }
  if (classes >= 0 && static_cast<std::int64_t>(labels.size()) != classes)
    throw Error(ErrorKind::invalid_argument,
                fmt::format("the labels file has {} lines for {} classes", labels.size(), classes), file.string());
  return labels;
}

}  // namespace lenslet
