#include "runtime/exec/prepared_cache.h"

#include <algorithm>
#include <cstring>

namespace lenslet {

namespace {

bool same_bytes(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Tensor& x, const Tensor& y) {
    return x.data() == y.data() || (x.bytes() == y.bytes() && std::memcmp(x.data(), y.data(), x.bytes()) == 0);
  });
}

}  // namespace

PreparedCache::Entries::iterator PreparedCache::find(const PreparedKey& key) {
  const auto [first, end] = entries_.equal_range(key.text);
  const auto found =
      std::find_if(first, end, [&](const auto& e) { return same_bytes(e.second.constants, key.constants); });
  return found == end ? entries_.end() : found;
}

std::vector<PreparedWeights> PreparedCache::get(std::span<const PreparedKey> keys,
                                                const std::function<PreparedWeights(std::size_t)>& make,
                                                ThreadPool* pool) {
  const std::lock_guard lock(mutex_);
  std::vector<Entries::iterator> wanted;
  std::vector<std::size_t> missing;
  std::vector<PreparedWeights> weights;  // keeps the entries alive
  wanted.reserve(keys.size());
  missing.reserve(keys.size());
  weights.reserve(keys.size());
  try {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      auto found = find(keys[i]);
      if (found == entries_.end()) {
        found = entries_.emplace(keys[i].text, Entry{{}, keys[i].constants});
        missing.push_back(i);
      }
      wanted.push_back(found);
    }
    const auto make_some = [&](std::int64_t begin, std::int64_t end, int) {
      for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
        wanted[missing[i]]->second.weights = make(missing[i]);
    };
    const auto count = static_cast<std::int64_t>(missing.size());
    if (pool != nullptr)
      pool->parallel_for(count, 1, make_some);
    else
      make_some(0, count, 0);
  } catch (...) {
    for (const std::size_t i : missing) entries_.erase(wanted[i]);
    throw;
  }
  for (const auto& entry : wanted) {
    entry->second.last_asked = ++asked_;
    weights.push_back(entry->second.weights);
  }
  if (!missing.empty()) trim_locked();
  return weights;
}

void PreparedCache::trim() {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void PreparedCache::trim_locked() {
  const auto is_unused = [](const auto& entry) { return entry.second.weights.data.use_count() == 1; };
  std::size_t unused = 0;
  for (const auto& entry : entries_)
    if (is_unused(entry)) unused += entry.second.weights.bytes;
  while (unused > most_unused_bytes_) {
    auto oldest = entries_.end();
    for (auto entry = entries_.begin(); entry != entries_.end(); ++entry)
      if (is_unused(*entry) && (oldest == entries_.end() || entry->second.last_asked < oldest->second.last_asked))
        oldest = entry;
    unused -= oldest->second.weights.bytes;
    entries_.erase(oldest);
  }
}

std::size_t PreparedCache::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t sum = 0;
  for (const auto& entry : entries_) sum += entry.second.weights.bytes;
  return sum;
}

}  // namespace lenslet
