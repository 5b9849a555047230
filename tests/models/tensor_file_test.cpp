// .npy and .pb files, valid and damaged.

#include "lenslet/tensor_file.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lenslet/model.h"
#include "models/input_file.h"
#include "models/npy_header.h"
#include "tests/expect_error.h"
#include "tests/models/onnx_writer.h"
#include "tests/models/temp_dir.h"

using namespace lenslet;
using namespace lenslet::test;

namespace {

std::string npy(const std::string& dict, const std::string& data, char major = 1) {
  std::string file = "\x93NUMPY";
  file += {major, '\0', static_cast<char>(dict.size() & 0xFF), static_cast<char>(dict.size() >> 8)};
  if (major == 2) file += {static_cast<char>(dict.size() >> 16), '\0'};
  return file + dict + data;
}

Tensor read(const TempDir& folder, const std::string& content) { return read_npy(folder.write("t.npy", content)); }

}  // namespace

TEST_CASE("tensor_file/npy_round_trip") {
  const TempDir folder;
  std::mt19937 random(3);
  for (const DType dtype : {DType::f32, DType::f64, DType::f16, DType::i8, DType::u8, DType::i16, DType::u16,
                            DType::i32, DType::u32, DType::i64, DType::u64, DType::boolean})
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{0, 3}, Shape{2, 3, 5}, Shape{1, 2, 1, 2, 1, 2, 1, 3}}) {
      CAPTURE(std::string(to_string(dtype)));
      CAPTURE(shape.str());
      Tensor tensor(dtype, shape);
      auto* bytes = static_cast<unsigned char*>(tensor.data());
      for (std::size_t i = 0; i < tensor.bytes(); ++i)
        bytes[i] = static_cast<unsigned char>(dtype == DType::boolean ? random() % 2 : random());
      write_npy(folder / "t.npy", tensor);
      CHECK((std::filesystem::file_size(folder / "t.npy") - tensor.bytes()) % 64 == 0);
      const Tensor back = read_npy(folder / "t.npy");
      CHECK(back.dtype() == dtype);
      CHECK(back.shape() == shape);
      CHECK((tensor.bytes() == 0 || std::memcmp(back.data(), tensor.data(), tensor.bytes()) == 0));
    }
}

TEST_CASE("tensor_file/npy_takes_the_place_of_what_was_there") {
  namespace fs = std::filesystem;
  const TempDir folder;
  const auto only = [&](const std::string& names) {
    std::set<std::string> found;
    for (const auto& entry : fs::directory_iterator(folder / ".")) found.insert(entry.path().filename().string());
    CHECK(fmt::format("{}", fmt::join(found, " ")) == names);
  };
  write_npy(folder / "t.npy", Tensor::of<float>(Shape{1}, {1}));
  fs::permissions(folder / "t.npy", fs::perms::owner_all);
  fs::create_symlink("t.npy", folder / "link.npy");
  const InputFile before(folder / "t.npy", 1000);
  write_npy(folder / "link.npy", Tensor::of<float>(Shape{1}, {2}));
  only("link.npy t.npy");
  CHECK(fs::is_symlink(folder / "link.npy"));
  CHECK(fs::status(folder / "t.npy").permissions() == fs::perms::owner_all);
  CHECK(read_npy(folder / "t.npy").values<float>()[0] == 2);
  float kept = 0;  // whoever opened the old file still has all of it
  before.read(before.bytes() - sizeof kept, std::as_writable_bytes(std::span(&kept, 1)));
  CHECK(kept == 1);

  fs::create_directory(folder / "folder.npy");
  CHECK_ERROR(write_npy(folder / "folder.npy", Tensor(DType::f32, Shape{1})), io, "cannot be written: Is a directory");
  only("folder.npy link.npy t.npy");
  if (!fs::exists("/dev/full")) return;
  CHECK_ERROR(write_npy("/dev/full", Tensor(DType::f32, Shape{1})), io, "No space left");
  CHECK(fs::is_character_file("/dev/full"));
}

TEST_CASE("tensor_file/write_file_follows_links_and_keeps_what_files_have") {
  namespace fs = std::filesystem;
  const TempDir folder;
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  const auto text = [](const fs::path& file) {
    std::ifstream stream(file, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(stream), {});
  };
  fs::create_directories(folder / "there/deep");
  // A link to a link to a missing file: both links stay.
  fs::create_symlink("deep/new", folder / "there/second");
  fs::create_symlink("there/second", folder / "first");
  for (const std::string words : {"one", "another"}) {
    write_file(folder / "first", bytes(words));
    CHECK(text(folder / "there/deep/new") == words);
    CHECK(fs::is_symlink(folder / "first"));
    CHECK(fs::is_symlink(folder / "there/second"));
  }
  fs::create_symlink(folder / "there/deep/new", folder / "absolute");
  fs::permissions(folder / "there/deep/new", fs::perms(04750));
  fs::create_hard_link(folder / "there/deep/new", folder / "old");
  write_file(folder / "absolute", bytes("third"));
  CHECK(text(folder / "first") == "third");
  CHECK(text(folder / "old") == "another");
  CHECK(fs::status(folder / "first").permissions() == fs::perms(04750));  // setuid too: the owner is the same
  fs::create_symlink("round", folder / "round");
  CHECK_ERROR(write_file(folder / "round", bytes("x")), io, "round: cannot be written: Too many levels");
  // Paths that only look like a descriptor are not treated as one.
  for (const char* const none : {"", "x", "1x", "1234567", "99999999999999999999"})
    CHECK_ERROR(write_file(fs::path("/dev/fd/") / none, bytes("x")), io,
                *none == 0 ? "Is a directory" : "No such file");
  CHECK_ERROR(write_file("/dev/fd/123456", bytes("x")), io, "Bad file descriptor");
  // The maximum number of links in Linux, and one more.
  fs::create_directory(folder / "links");
  for (int i = 1; i <= 41; ++i) fs::create_symlink(fmt::format("{}", i - 1), folder / fmt::format("links/{}", i));
  write_file(folder / "links/40", bytes("far"));
  CHECK(text(folder / "links/0") == "far");
  CHECK_ERROR(write_file(folder / "links/41", bytes("x")), io, "41: cannot be written: Too many levels");
  CHECK(text(folder / "links/0") == "far");
  fs::create_symlink("none/file", folder / "nowhere");
  CHECK_ERROR(write_file(folder / "nowhere", bytes("x")), io, "nowhere: cannot be written: No such file");
  write_file(folder / "empty", {});
  CHECK(fs::file_size(folder / "empty") == 0);
  constexpr uid_t nobody = 65534;
  if (::chown((folder / "empty").c_str(), nobody, nobody) == 0) {
    write_file(folder / "empty", bytes("full"));
    struct stat status {};
    REQUIRE(::stat((folder / "empty").c_str(), &status) == 0);
    CHECK(status.st_uid == nobody);
    // A file owned by another user in a folder of ours is written in place.
    fs::permissions(folder / "there/deep/new", fs::perms(0666));
    fs::permissions(folder / ".", fs::perms(0755));
    REQUIRE(::seteuid(nobody) == 0);
    bool refused = false;
    try {
      write_file(folder / "there/deep/new", bytes("in place"));
      write_file(folder / "there/deep/newer", bytes("x"));
    } catch (const Error&) {
      refused = true;
    }
    REQUIRE(::seteuid(0) == 0);
    CHECK(refused);
    CHECK(text(folder / "there/deep/new") == "in place");
    CHECK_FALSE(fs::exists(folder / "there/deep/newer"));
    // In a folder where users may replace only their own files, like /tmp.
    fs::create_directory(folder / "all");
    fs::permissions(folder / "all", fs::perms(01777));
    write_file(folder / "all/ours", bytes("ours"));
    fs::permissions(folder / "all/ours", fs::perms(0666));
    REQUIRE(::seteuid(nobody) == 0);
    std::string why;
    try {
      write_file(folder / "all/ours", bytes("theirs"));
    } catch (const Error& error) {
      why = error.what();
    }
    REQUIRE(::seteuid(0) == 0);
    CHECK(why == "");
    CHECK(text(folder / "all/ours") == "theirs");
  }
  // Standard output to a file: appends, and later output stays.
  std::FILE* const output = std::fopen((folder / "output").c_str(), "w");
  REQUIRE(output != nullptr);
  std::fputs("before ", output);
  std::fflush(output);
  for (const std::string& fds :
       {std::string("/proc/self/fd"), fmt::format("/proc/{}/fd", ::getpid()), std::string("/dev/fd")}) {
    fs::remove(folder / "stdout");
    fs::create_symlink(fmt::format("{}/{}", fds, ::fileno(output)), folder / "stdout");
    write_file(folder / "stdout", bytes("written"));
    std::fputs(" after", output);
    std::fflush(output);
  }
  std::fclose(output);
  CHECK(text(folder / "output") == "before written afterwritten afterwritten after");
  for (const auto& entry : fs::recursive_directory_iterator(folder / "."))
    CHECK_FALSE(entry.path().filename().string().starts_with(".lenslet"));
}

// Then the old file stays complete, and no other file remains.
TEST_CASE("tensor_file/write_file_that_fails_half_way") {
  namespace fs = std::filesystem;
  const TempDir folder;
  const auto bytes = [](const std::string& text) { return std::as_bytes(std::span(text)); };
  const std::string long_text(100'000, 'x');
  for (const bool replaces : {true, false}) {
    const fs::path file = folder / (replaces ? "old" : "new");
    if (replaces) folder.write("old", "old");
    rlimit limit{};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &limit) == 0);
    const rlimit small{50'000, limit.rlim_max};
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    std::string why;
    try {
      write_file(file, bytes(long_text));
    } catch (const Error& error) {
      why = error.what();
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
    std::signal(SIGXFSZ, handler);
    CHECK(why == file.string() + ": cannot be written: File too large");
    CHECK(fs::exists(file) == replaces);
  }
  CHECK(fs::file_size(folder / "old") == 3);
  // The temporary file's name would be too long, although its own is not.
  fs::path deep = folder.path();
  while (deep.string().size() < 4090 - 1)
    deep /= std::string(std::min<std::size_t>(200, 4090 - deep.string().size() - 1), 'd');
  fs::create_directories(deep);
  std::ofstream(deep / "f") << "old";
  REQUIRE(fs::file_size(deep / "f") == 3);
  CHECK_ERROR(write_file(deep / "f", bytes("longer")), io, "cannot be written: File name too long");
  CHECK(fs::file_size(deep / "f") == 3);
  CHECK(std::distance(fs::directory_iterator(deep), {}) == 1);
}

TEST_CASE("tensor_file/writers_of_one_file_do_not_meet") {
  // Processes and threads write the same file with different lengths; readers find one of them complete.
  const TempDir folder;
  const std::filesystem::path file = folder / "shared";
  constexpr int writers = 4, rounds = 50;
  const auto write = [&](int writer) {
    const std::string text(static_cast<std::size_t>(30000 * (writer + 1)), static_cast<char>('a' + writer));
    for (int i = 0; i < rounds; ++i) write_file(file, std::as_bytes(std::span(text)));
  };
  write(0);
  std::vector<pid_t> children;
  for (int writer = 1; writer < writers; ++writer) {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      int failed = 0;
      try {
        write(writer);
      } catch (...) {
        failed = 1;
      }
      ::_exit(failed);
    }
    children.push_back(child);
  }
  std::thread other([&] { write(0); });
  bool whole = true;
  for (int i = 0; i < 200; ++i) {
    std::ifstream stream(file, std::ios::binary);
    const std::string found(std::istreambuf_iterator<char>(stream), {});
    whole = whole && !found.empty() && found.size() == static_cast<std::size_t>(30000 * (found[0] - 'a' + 1)) &&
            found.find_first_not_of(found[0]) == std::string::npos;
  }
  other.join();
  CHECK(whole);
  for (const pid_t child : children) {
    int status = -1;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
  CHECK(std::distance(std::filesystem::directory_iterator(folder / "."), {}) == 1);
}

TEST_CASE("tensor_file/npy_as_numpy_writes_it") {
  // The header that NumPy 1.24 writes for a [2,3] float32 array.
  CHECK(npy_header(DType::f32, Shape{2, 3}).substr(10, 60) ==
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), } ");
  CHECK(contains(npy_header(DType::u8, Shape{4}), "'|u1'"));
  CHECK(contains(npy_header(DType::u8, Shape{4}), "(4,)"));
  CHECK(contains(npy_header(DType::i64, Shape{}), "()"));
  CHECK_ERROR(npy_header(DType::bf16, Shape{1}), unsupported, "bfloat16");
  // It is padded to the next multiple of 64, whatever its length.
  std::vector<std::int64_t> dims(8, 1);
  for (std::size_t more = 0; more < 128; dims[++more % 8] *= 10) {
    const std::string header = npy_header(DType::f32, Shape(dims));
    CHECK(header.size() % 64 == 0);
    const std::size_t last = header.find_last_not_of(" \n");
    CHECK(header[last] == '}');
    CHECK(header.size() - last - 2 < 64);
  }
}

TEST_CASE("tensor_file/npy_layouts") {
  const TempDir folder;
  // [2,3] in Fortran order: columns first.
  const float columns[6] = {0, 10, 1, 11, 2, 12};
  const std::string data(reinterpret_cast<const char*>(columns), sizeof columns);
  const Tensor tensor = read(folder, npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", data));
  const float rows[6] = {0, 1, 2, 10, 11, 12};
  CHECK(std::memcmp(tensor.data(), rows, sizeof rows) == 0);
  // Version 2, other quotes, order of keys and spaces.
  const Tensor again = read(folder, npy("{\"shape\":(6),\"fortran_order\" : False , \"descr\":\"<f4\"}\n", data, 2));
  CHECK(again.shape() == Shape{6});
  // An nhwc tensor is written in NCHW order.
  Tensor nhwc = Tensor::of<float>(Shape{1, 2, 1, 3}, {0, 1, 2, 3, 4, 5}).to_format(formats::nhwc);
  write_npy(folder / "n.npy", nhwc);
  const Tensor nchw = read_npy(folder / "n.npy");
  for (int i = 0; i < 6; ++i) CHECK(nchw.values<float>()[static_cast<std::size_t>(i)] == static_cast<float>(i));
}

TEST_CASE("tensor_file/npy_refused") {
  const TempDir folder;
  const std::string four(4, '\0');
  const auto header = [&](const std::string& dict) { return read(folder, npy(dict, four)); };
  CHECK_NOTHROW(header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }"));
  CHECK_ERROR(read(folder, ""), io, "first bytes");
  CHECK_ERROR(read(folder, "not a numpy file"), io, "first bytes");
  CHECK_ERROR(read(folder, npy("{}", "", 3)), unsupported, "version 3");
  CHECK_ERROR(read(folder, std::string("\x93NUMPY\x01\x00\xff\x7f{", 11)), io, "ends in its header");
  CHECK_ERROR(header("{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }"), unsupported, "'>f4'");
  CHECK_ERROR(header("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }"), unsupported, "'<c8'");
  CHECK_ERROR(header("{'descr': '<~ {\x7f\x1f}34567890123456', 'fortran_order': False, 'shape': (1,), }"), unsupported,
              "a .npy file of type '<~ {??}345678901' is not supported");
  CHECK_ERROR(header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }"), unsupported, "'|O'");
  CHECK_ERROR(header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }"), unsupported, "records");
  CHECK_ERROR(header("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }"), io, "need 8 bytes, it has 4");
  CHECK_ERROR(header("{'descr': '<f4', 'fortran_order': False, 'shape': (), } x"), io, "behind its header");
  CHECK_ERROR(header("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }"), io, "dimension");
  CHECK_ERROR(header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,), }"), io, "dimension");
  CHECK_ERROR(header("{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 1099511627776), }"), limit, "");
  CHECK_ERROR(header("{'descr': '|u1', 'fortran_order': False, 'shape': (4294967296,), }"), io,
              "need 4294967296 bytes, it has 4");
  CHECK_ERROR(header("{'descr': '|u1', 'fortran_order': False, 'shape': (4294967297,), }"), limit, "more elements");
  CHECK_ERROR(header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1), }"), limit,
              "rank above 8");
  CHECK_ERROR(header("{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }"), io, "True or False");
  for (const char* const lacking : {"{'descr': '<f4', 'fortran_order': False, }", "{'descr': '<f4', 'shape': (1,), }",
                                    "{'fortran_order': False, 'shape': (1,), }"})
    CHECK_ERROR(header(lacking), io, "lacks");
  for (const char* const bare : {"{descr': '<f4'}", "{", "{'descr': 5}", "{'descr': "})
    CHECK_ERROR(header(bare), io, "a string expected");
  for (const char* const type : {"", "|f4", ">u1", "=u1"})
    CHECK_ERROR(header(fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': (1,), }}", type)), unsupported,
                fmt::format("of type '{}' is", type));
  CHECK_ERROR(header("{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }"), io, "doubled");
  CHECK_ERROR(header("{'descr': '<f4"), io, "string without end");
  CHECK_ERROR(header("['descr']"), io, "'{' expected");
  CHECK_ERROR(read(folder, npy("{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }", "\x02")), io, "bool");
  CHECK_ERROR(write_npy(folder / "none.npy", Tensor()), invalid_argument, "none.npy");
  CHECK_FALSE(std::filesystem::exists(folder / "none.npy"));
  const Error error = error_of([&] { read(folder, "x"); });
  CHECK(contains(error.context(), "t.npy"));
  CHECK_ERROR(read_npy(folder / "missing.npy"), io, "missing.npy");
  CHECK_ERROR(read_npy(""), invalid_argument, "empty");
  CHECK_ERROR(Model::load(""), invalid_argument, "empty");
  if (std::filesystem::exists("/proc/version")) CHECK_ERROR(read_npy("/proc/version"), io, "as in /proc");
  CHECK_ERROR(write_npy(folder / "no/such/t.npy", Tensor(DType::f32, Shape{1})), io, "cannot be written");
}

// Limits of a header's position and length, to the byte.
TEST_CASE("tensor_file/npy_headers_at_their_limits") {
  const TempDir folder;
  const std::string dict = "{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }";
  const auto header = [&](std::size_t bytes, char version) {
    return read(folder, npy(dict + std::string(bytes - dict.size(), ' '), "\x07", version));
  };
  for (const std::size_t bytes : {dict.size(), std::size_t{256}, std::size_t{65'535}})
    for (const char version : {'\1', '\2'}) CHECK(header(bytes, version).values<std::uint8_t>()[0] == 7);
  CHECK(header(65'536, 2).elems() == 1);
  CHECK_ERROR(header(65'537, 2), limit, "a .npy header of 65537 bytes; at most 65536 are allowed");
  CHECK_ERROR(read(folder, npy(dict, "", 0)), unsupported, "version 0");
  for (const char version : {'\1', '\2'}) CHECK_ERROR(read(folder, npy("", "", version)), io, "'{' expected");
  const std::string whole = npy(dict, "\x07", 2);
  for (std::size_t cut = 0; cut + 1 < whole.size(); ++cut)
    CHECK_ERROR(read(folder, whole.substr(0, cut)), io,
                cut < 10 ? "its first bytes are not those of one" : "it ends in its header");
  CHECK_ERROR(read(folder, whole.substr(0, whole.size() - 1)), io, "need 1 bytes, it has 0");
  const auto shape = [&](const char* text) {
    return read(folder, npy(std::string("{'descr': '|u1', 'fortran_order': False, 'shape': ") + text + "}", "\x07"))
        .shape();
  };
  CHECK(shape("(1,1,1,1,1,1,1,1)").rank() == 8);
  CHECK(shape("()").rank() == 0);
  CHECK(shape("( 1 , 1 )") == Shape{1, 1});
  CHECK_ERROR(shape("(1 1)"), io, "')' expected in its header");
}

TEST_CASE("tensor_file/npy_random_damage_is_an_error_or_a_tensor") {
  const TempDir folder;
  const std::string whole = npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 1), }", std::string(8, '\0'));
  std::mt19937 random(11);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    if (random() % 4 == 0) damaged.resize(random() % damaged.size());
    try {
      const Tensor tensor = read(folder, damaged);  // outside CHECK, which would catch the Error itself
      CHECK(tensor.elems() <= 8);
    } catch (const Error& error) {
      CHECK(error.kind() != ErrorKind::internal);
    }
  }
}

TEST_CASE("tensor_file/pb") {
  const TempDir folder;
  std::string name;
  const Tensor tensor =
      read_tensor_pb(folder.write("t.pb", raw_tensor<std::uint16_t>("weights", f16, {2}, {0x3C00, 0x4000})), &name);
  CHECK(name == "weights");
  CHECK(tensor.dtype() == DType::f16);  // test data keeps its type; only models are widened
  CHECK(tensor.shape() == Shape{2});
  CHECK_ERROR(read_tensor_pb(folder.write("bad.pb", "\xff")), invalid_model, "bad.pb");
  CHECK_ERROR(read_tensor_pb(folder.write("s.pb", "")), invalid_model, "element type");
  const std::string outside = ::lenslet::test::tensor("w", f32, {1}, [](pbf_writer& writer) {
    writer.add_message(13, message([](pbf_writer& entry) {
                         entry.add_string(1, "location");
                         entry.add_string(2, "t.pb");
                       }));
    writer.add_enum(14, 1);
  });
  CHECK_ERROR(read_tensor_pb(folder.write("e.pb", outside)), unsupported, "external data");
}
