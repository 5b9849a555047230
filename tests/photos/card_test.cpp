#include "lenslet/card.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <string>

#include "lenslet/error.h"
#include "photos/cards/known_cards.h"
#include "photos/cards/sha256.h"
#include "photos/cards/write_card.h"
#include "tests/expect_error.h"

namespace lenslet {
namespace {

const char* whole_card = R"({
  "name": "Net", "model": "net.onnx", "labels": "net.txt",
  "input": {"name": "x", "layout": "NHWC", "channels": "BGR", "size": [96, 128]},
  "resize": {"mode": "shorter_side", "size": 144, "filter": "bicubic", "antialias": false},
  "crop": "center",
  "normalize": {"scale": 0.5, "mean": [1, 2, 3], "std": [4, 5, 6]},
  "output": {"name": "y", "softmax": true, "class_offset": 1}
})";

Card parse(const nlohmann::json& json) { return parse_card(json.dump(), "folder/net.card.json"); }

std::string refusal(const nlohmann::json& json) {
  try {
    (void)parse(json);
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::invalid_argument);
    CHECK(error.context() == "folder/net.card.json");
    return error.message();
  }
  return "accepted";
}

TEST_CASE("card/as json and back") {
  nlohmann::json json = nlohmann::json::parse(whole_card);
  json.erase("resize");  // its size is only stored if photos are resized
  for (const nlohmann::json& softmax : {nlohmann::json(true), nlohmann::json(false), nlohmann::json()}) {
    json["output"]["softmax"] = softmax;
    const Card card = parse(json);
    CHECK(card.softmax.has_value() != softmax.is_null());
    const Card back = parse_card(photos::card_json(card), "elsewhere");
    CHECK(photos::card_json(back) == photos::card_json(card));
    CHECK(back.softmax == card.softmax);
    CHECK(back.name == card.name);
    CHECK(back.input == card.input);
    CHECK(back.output == card.output);
    CHECK(back.class_offset == card.class_offset);
    CHECK(describe(back.spec) == describe(card.spec));
    CHECK(!back.labels);
  }
  const Card card = parse_card(whole_card, "net.card.json");
  const Card back = parse_card(photos::card_json(card), "elsewhere");
  CHECK(describe(back.spec) == describe(card.spec));
  CHECK(back.spec.antialias == card.spec.antialias);
}

TEST_CASE("card/letterboxes as json and back") {
  nlohmann::json json = nlohmann::json::parse(whole_card);
  for (const char* mode : {"longer_side", "fit"})
    for (const char* position : {"center", "top_left"})
      for (const bool down : {false, true})
        for (const char* crop : {"center", "none"}) {
          json["resize"] = {{"mode", mode}, {"round_down", down}};
          if (mode == std::string("longer_side")) json["resize"]["size"] = 96;
          json["pad"] = {{"color", {114, 0, 255}}, {"position", position}};
          json["crop"] = crop;
          const ImageSpec spec = parse(nlohmann::json::parse(photos::card_json(parse(json)))).spec;
          CHECK(spec.resize ==
                (json["resize"].contains("size") ? ImageSpec::Resize::longer_side : ImageSpec::Resize::fit));
          if (json["resize"].contains("size")) CHECK(spec.resize_size == 96);
          CHECK(spec.pad == (position == std::string("center") ? ImageSpec::Pad::center : ImageSpec::Pad::top_left));
          CHECK(spec.pad_color == std::array<std::uint8_t, 3>{114, 0, 255});
          CHECK(spec.round_down == down);
          CHECK(spec.crop == (crop == std::string("center") ? ImageSpec::Crop::center : ImageSpec::Crop::none));
        }
  json.erase("crop");
  CHECK(parse(json).spec.crop == ImageSpec::Crop::none);
  CHECK(describe(parse(json).spec) ==
        "BGR 96x128 NHWC, fitted (bilinear), rounded down, top left in padding of [114, 0, 255], "
        "(pixel * 0.5 - [1, 2, 3]) / [4, 5, 6]");
  json["resize"] = {{"mode", "longer_side"}, {"size", 90}};
  json["pad"]["position"] = "center";
  CHECK(describe(parse(json).spec).find("NHWC, longer side to 90 (bilinear), center in padding of [114, 0, 255], (") !=
        std::string::npos);
  // Without resizing, what is larger is cropped, and what is smaller is padded.
  json.erase("resize");
  const ImageSpec unresized = parse(nlohmann::json::parse(photos::card_json(parse(json)))).spec;
  CHECK(unresized.resize == ImageSpec::Resize::none);
  CHECK(unresized.crop == ImageSpec::Crop::center);
  CHECK(unresized.pad == ImageSpec::Pad::center);
}

TEST_CASE("card/every field") {
  const Card card = parse_card(whole_card, "folder/net.card.json");
  CHECK(card.name == "Net");
  CHECK(card.model == "net.onnx");
  CHECK(card.labels == std::filesystem::path("folder/net.txt"));
  CHECK(card.input == "x");
  CHECK(card.spec.nhwc);
  CHECK(card.spec.channels == ImageSpec::Channels::bgr);
  CHECK(card.spec.height == 96);
  CHECK(card.spec.width == 128);
  CHECK(card.spec.resize == ImageSpec::Resize::shorter_side);
  CHECK(card.spec.resize_size == 144);
  CHECK(card.spec.filter == ImageSpec::Filter::bicubic);
  CHECK(!card.spec.antialias);
  CHECK(card.spec.crop == ImageSpec::Crop::center);
  CHECK(card.spec.scale == 0.5);
  CHECK(card.spec.mean == std::vector<double>{1, 2, 3});
  CHECK(card.spec.std == std::vector<double>{4, 5, 6});
  CHECK(card.output == "y");
  CHECK(card.softmax == true);
  CHECK(card.class_offset == 1);
  CHECK(!card.draft);
}

TEST_CASE("card/draft as json and back") {
  nlohmann::json json = nlohmann::json::parse(whole_card);
  CHECK(describe(parse(json)) == describe(parse(json).spec));
  for (const bool draft : {true, false}) {
    json["resize"]["draft"] = draft;
    const Card card = parse(json);
    CHECK(card.draft == draft);
    CHECK((card.draft_spec() == &card.spec) == draft);
    CHECK((describe(card).find("JPEGs drafted") != std::string::npos) == draft);
    CHECK(parse(nlohmann::json::parse(photos::card_json(card))).draft == draft);
  }
  json["resize"] = {{"draft", true}};
  CHECK(refusal(json).find("resize.mode is missing") == 0);
}

TEST_CASE("card/what may be left out") {
  const Card card = parse({{"input", {{"size", {28, 28}}, {"channels", "gray"}}}});
  CHECK(card.spec.resize == ImageSpec::Resize::none);
  CHECK(card.spec.crop == ImageSpec::Crop::center);
  CHECK(card.spec.mean == std::vector<double>{0});
  CHECK(card.spec.scale == 1);
  CHECK(card.softmax == false);
  CHECK(!card.labels);
  const Card stretch = parse({{"input", {{"size", {8, 9}}}}, {"resize", {{"mode", "stretch"}}}});
  CHECK(stretch.spec.crop == ImageSpec::Crop::none);
}

TEST_CASE("card/boxes as json and back") {
  nlohmann::json json = nlohmann::json::parse(whole_card);
  json["output"]["softmax"] = nullptr;
  CHECK(!parse(json).boxes);
  using Form = BoxOutput::Form;
  const std::pair<const char*, Form> forms[] = {{"boxes_scores", Form::boxes_scores},
                                                {"yolov8", Form::yolov8},
                                                {"yolov5", Form::yolov5},
                                                {"end_to_end", Form::end_to_end},
                                                {"boxes_labels_scores", Form::boxes_labels_scores}};
  for (const auto& [name, form] : forms) {
    const bool labels = form == Form::boxes_labels_scores, apart = labels || form == Form::boxes_scores;
    nlohmann::json boxes{{"form", name}};
    if (apart) boxes["boxes"] = "b";
    if (labels) boxes["labels"] = "l";
    json["output"]["boxes"] = boxes;
    CHECK(parse(json).boxes->center == (form == Form::yolov8 || form == Form::yolov5));
    for (const bool center : {false, true}) {
      json["output"]["boxes"]["coordinates"] = center ? "center" : "corners";
      json["output"]["boxes"]["normalized"] = center;
      const Card card = parse(nlohmann::json::parse(photos::card_json(parse(json))));
      REQUIRE(card.boxes);
      CHECK(card.output == "y");
      CHECK(card.boxes->form == form);
      CHECK(card.boxes->boxes == (apart ? "b" : ""));
      CHECK(card.boxes->labels == (labels ? "l" : ""));
      CHECK(card.boxes->center == center);
      CHECK(card.boxes->normalized == center);
    }
  }
}

TEST_CASE("card/unknown fields, wrong types and contradictions name the field") {
  const nlohmann::json good = nlohmann::json::parse(whole_card);
  nlohmann::json letterbox = good;
  letterbox["crop"] = "none";
  letterbox["resize"] = {{"mode", "longer_side"}, {"size", 96}};
  letterbox["pad"] = {{"color", {114, 114, 114}}, {"position", "center"}};
  struct Case {
    const char* pointer;
    nlohmann::json value;
    const char* field;
  };
  const Case cases[] = {
      {"/colour", 1, "colour is no field"},
      {"/input/shape", {1, 3}, "input.shape is no field"},
      {"/resize/interpolation", "x", "resize.interpolation is no field"},
      {"/normalize/variance", 1, "normalize.variance is no field"},
      {"/output/classes", 5, "output.classes is no field"},
      {"/name", 5, "name has to be"},
      {"/input", {1, 2}, "input has to be"},
      {"/input/layout", "CHW", "input.layout is 'CHW'"},
      {"/input/channels", "rgb", "input.channels is 'rgb'"},
      {"/input/size", {224}, "input.size"},
      {"/input/size", {0, 224}, "input.size"},
      {"/input/size", {1.5, 224}, "input.size"},
      {"/input/size", {1000000, 224}, "input.size"},
      {"/resize/mode", "longest_side", "resize.mode is"},
      {"/resize/mode", "longer_side", "pad is missing"},
      {"/resize/mode", "fit", "pad is missing"},
      {"/resize/round_down", true, "resize.round_down is no field"},
      {"/pad", letterbox["pad"], "pad contradicts resize.mode"},
      {"/pad", 114, "pad has to be"},
      {"/resize/size", 127, "resize.size is 127, which contradicts input.size"},
      {"/resize/size", "144", "resize.size has to be"},
      {"/resize/size", 144.5, "resize.size has to be"},
      {"/resize/filter", "lanczos", "resize.filter is"},
      {"/resize/antialias", 1, "resize.antialias has to be"},
      {"/resize/mode", "stretch", "resize.size is 144, which contradicts resize.mode"},
      {"/crop", "none", "crop is none, which contradicts resize.mode"},
      {"/crop", "top", "crop is 'top'"},
      {"/normalize/mean", {1, 2}, "normalize.mean has 2 values"},
      {"/normalize/std", {1, 0, 2}, "normalize.std holds a 0"},
      {"/normalize/mean", {1, "2", 3}, "normalize.mean has to be"},
      {"/normalize/scale", 0, "normalize.scale is 0"},
      {"/input/channels", "gray", "normalize.mean has 3 values"},
      {"/output/softmax", "yes", "output.softmax has to be"},
      {"/output/class_offset", 0.5, "output.class_offset has to be"},
      {"/source", 1, "source has to be"},
      {"/files", "x", "files has to be a list"},
      {"/files", {1}, "files[0] has to be"},
      {"/files", {{{"name", "x"}}, nlohmann::json::object()}, "files[1].name is missing"},
      {"/files", {{{"name", "x"}, {"bytes", 5}}}, "files[0].bytes and sha256 belong together"},
      {"/files", {{{"sha256", std::string(64, 'a')}}}, "files[0].bytes and sha256 belong together"},
      {"/files", {{{"bytes", 5}, {"sha256", std::string(64, 'A')}}}, "files[0].sha256 has to be 64"},
      {"/files", {{{"name", "x"}, {"size", 5}}}, "files[0].size is no field"},
  };
  for (const Case& c : cases) {
    nlohmann::json card = good;
    card[nlohmann::json::json_pointer(c.pointer)] = c.value;
    const std::string message = refusal(card);
    CAPTURE(message);
    CHECK(message.find(c.field) == 0);
  }
  const Case letterboxes[] = {
      {"/pad/position", "left", "pad.position is 'left'"},
      {"/pad/color", 114, "pad.color has to be a list"},
      {"/pad/color", {114}, "pad.color has to be [R, G, B]"},
      {"/pad/color", {0, 0, 256}, "pad.color has to be [R, G, B]"},
      {"/pad/color", {0, -1, 0}, "pad.color has to be [R, G, B]"},
      {"/pad/color", {0, 0.5, 0}, "pad.color has to be [R, G, B]"},
      {"/pad/colour", {0, 0, 0}, "pad.colour is no field"},
      {"/pad", {{"color", {0, 0, 0}}}, "pad.position is missing"},
      {"/pad", {{"position", "center"}}, "pad.color has to be [R, G, B]"},
      {"/resize/round_down", 1, "resize.round_down has to be"},
      {"/resize/draft", 2, "resize.draft has to be"},
      {"/resize/size", 97, "resize.size is 97, which contradicts input.size"},
      {"/resize/size", 0, "resize.size is 0, which contradicts input.size"},
      {"/resize", {{"mode", "longer_side"}}, "resize.size is missing"},
      {"/resize", {{"mode", "fit"}, {"size", 96}}, "resize.size is 96, which contradicts resize.mode"},
      {"/resize", {{"mode", "stretch"}}, "pad contradicts resize.mode"},
  };
  for (const Case& c : letterboxes) {
    nlohmann::json card = letterbox;
    card[nlohmann::json::json_pointer(c.pointer)] = c.value;
    const std::string message = refusal(card);
    CAPTURE(message);
    CHECK(message.find(c.field) == 0);
  }
  CHECK(refusal(letterbox) == "accepted");
  nlohmann::json detector = good;
  detector["output"]["softmax"] = false;
  detector["output"]["boxes"] = {{"form", "boxes_labels_scores"}, {"boxes", "b"}, {"labels", "l"}};
  CHECK(refusal(detector) == "accepted");
  const Case boxes[] = {
      {"/output/boxes", "boxes", "output.boxes has to be"},
      {"/output/boxes", nlohmann::json::object(), "output.boxes.form is missing"},
      {"/output/boxes/form", "yolo", "output.boxes.form is 'yolo'"},
      {"/output/boxes/form", 8, "output.boxes.form has to be"},
      {"/output/boxes/form", "boxes_scores", "output.boxes.labels contradicts form"},
      {"/output/boxes/form", "yolov8", "output.boxes.boxes contradicts form"},
      {"/output/boxes/boxes", "", "output.boxes.boxes is missing"},
      {"/output/boxes/labels", 1, "output.boxes.labels has to be"},
      {"/output/boxes/coordinates", "xywh", "output.boxes.coordinates is 'xywh'"},
      {"/output/boxes/normalized", 1, "output.boxes.normalized has to be"},
      {"/output/boxes/anchors", {1, 2}, "output.boxes.anchors is no field"},
      {"/output/softmax", true, "output.softmax is true, which contradicts output.boxes"},
      {"/output/name", "", "output.boxes.form needs output.name"},
  };
  for (const Case& c : boxes) {
    nlohmann::json card = detector;
    card[nlohmann::json::json_pointer(c.pointer)] = c.value;
    const std::string message = refusal(card);
    CAPTURE(message);
    CHECK(message.find(c.field) == 0);
  }
  CHECK(refusal(nlohmann::json::array()).find("the card has to be") == 0);
  CHECK(refusal({{"name", "x"}}).find("input is missing") == 0);
  CHECK_ERROR(parse_card("{\"input\":", "x"), invalid_argument, "x: this is no JSON");
  CHECK_ERROR(read_card("/nowhere/x.card.json"), io, "/nowhere/x.card.json: there is no such file");
}

TEST_CASE("card/the cards of models/cards are right") {
  int seen = 0;
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(LENSLET_SOURCE_DIR) + "/models/cards")) {
    const std::string name = entry.path().filename().string();
    CAPTURE(name);
    if (name.find(".card.json") == std::string::npos) continue;
    const Card card = read_card(entry.path());
    if (!card.model.empty()) CHECK(find_card(entry.path().parent_path() / card.model) == entry.path());
    // No two cards identify the same file.
    for (const KnownFile& known : card.files) {
      if (!known.sha256.empty()) CHECK(names.insert(known.sha256).second);
      if (!known.name.empty()) CHECK(names.insert(known.name).second);
      // If only the name identifies a file, the graph must tell whether there is a Softmax.
      if (!known.name.empty()) CHECK(!card.softmax);
    }
    if (card.labels) CHECK(read_labels(*card.labels, card.boxes ? 1 : 10).size() == (card.boxes ? 1 : 10));
    ++seen;
  }
  CHECK(seen >= 8);
}

TEST_CASE("card/known files: by checksum, else by name, whatever their names look like") {
  namespace fs = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("lenslet-known-" + std::to_string(getpid()));
  fs::create_directories(folder / "cards");
  const auto write = [&](const fs::path& name, const std::string& text) {
    std::ofstream(folder / name, std::ios::binary) << text;
    return folder / name;
  };
  // FIPS 180-4's first example.
  const std::string abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
  CHECK(photos::sha256_of(write("abc", "abc")) == abc);
  CHECK(photos::sha256_of(write("none", "")) == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK_ERROR(photos::sha256_of(folder), io, folder.string() + ": the file cannot be read");
  CHECK_ERROR(photos::sha256_of(folder / "missing"), io, "/missing: the file cannot be read");

  const auto card = [&](const std::string& name, const nlohmann::json& files) {
    write("cards/" + name + ".card.json", nlohmann::json{{"input", {{"size", {8, 8}}}}, {"files", files}}.dump());
  };
  card("a", {{{"name", "squeezenet1_1"}}, {{"bytes", 3}, {"sha256", std::string(64, '0')}}});
  card("b", {{{"name", "other"}, {"bytes", 3}, {"sha256", abc}}, {{"name", "SQUEEZENET1.1"}}});
  const auto found = [&](const fs::path& model) {
    const auto known = photos::find_known_card(model, folder / "cards");
    return known ? known->file.filename().string() + " " + std::string(to_string(known->found_by)) : "";
  };
  CHECK(found(write("any.onnx", "abc")) == "b.card.json checksum");
  CHECK(found(write("squeezenet1.1.onnx", "abc")) == "b.card.json checksum");  // contents take precedence over the name
  CHECK(found(write("squeezenet1.1.onnx", "abd")) == "a.card.json name");
  CHECK(found(write("SqueezeNet1-1.onnx", "abcd")) == "a.card.json name");
  CHECK(found(write("other.onnx", "abcd")) == "b.card.json name");
  CHECK(found(write("squeezenet1.1.1.onnx", "abcd")) == "");
  CHECK(found(folder / "missing.onnx") == "");
  // In memory, without a name.
  const auto found_by = [&](const std::string& model) {
    const auto known = photos::find_known_card(std::as_bytes(std::span(model)), folder / "cards");
    return known ? known->file.filename().string() + " " + std::string(to_string(known->found_by)) : "";
  };
  CHECK(found_by("abc") == "b.card.json checksum");
  CHECK(found_by("abd") == "");
  CHECK(found_by("") == "");
  CHECK(!photos::find_known_card(folder / "any.onnx", folder / "nowhere"));
  write("cards/c.card.json", "{");
  CHECK_ERROR(photos::find_known_card(folder / "any", folder / "cards"), invalid_argument,
              "/c.card.json: this is no JSON");
  fs::remove_all(folder);
}

TEST_CASE("card/labels are counted") {
  const auto file = std::filesystem::temp_directory_path() / ("lenslet-labels-" + std::to_string(getpid()) + ".txt");
  std::ofstream(file, std::ios::binary) << "tench\r\ngreat\twhite\x1b shark\nlast";
  CHECK(read_labels(file, 3) == std::vector<std::string>{"tench", "great white  shark", "last"});
  CHECK(read_labels(file, -1).size() == 3);
  CHECK_THROWS_WITH_AS(read_labels(file, 4), doctest::Contains("3 lines for 4 classes"), Error);
  std::filesystem::remove(file);
  CHECK_ERROR(read_labels(file, 3), io, file.string() + ": there is no such file");
}

TEST_CASE("card/sizes over the limits are refused") {
  const auto file = std::filesystem::temp_directory_path() / ("lenslet_card_limits_" + std::to_string(::getpid()));
  const auto refuses = [&](auto read) {
    try {
      read();
    } catch (const Error& error) {
      return error.kind() == ErrorKind::limit;
    }
    return false;
  };
  std::ofstream(file) << "{}";
  std::filesystem::resize_file(file, (1 << 20) + 1);
  CHECK(refuses([&] { (void)read_card(file); }));
  std::filesystem::resize_file(file, (16 << 20) + 1);
  CHECK(refuses([&] { (void)read_labels(file, -1); }));
  std::filesystem::resize_file(file, 1 << 20);
  CHECK_FALSE(refuses([&] { (void)read_card(file); }));  // not JSON, but read
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace lenslet
