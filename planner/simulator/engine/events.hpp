// Events and their order: time, then resource, then worker, then server.
#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "inputs.hpp"

namespace planner {

// Times are never negative, so bit patterns of times order as times do, and two integers decide.
struct Event {
  uint64_t time_bits = ~uint64_t{0};
  uint64_t key = ~uint64_t{0};

  Event() = default;
  Event(double time, uint64_t k) : time_bits(std::bit_cast<uint64_t>(time)), key(k) {}
  double time() const { return std::bit_cast<double>(time_bits); }
  bool none() const { return time_bits == ~uint64_t{0}; }
  bool operator<(const Event& other) const { return whole() < other.whole(); }
  // One wide number, so that comparing needs no branch.
  unsigned __int128 whole() const { return static_cast<unsigned __int128>(time_bits) << 64 | key; }
};

// The first event that may still come after `event`: events that sort before this first one have happened.
inline Event after(Event event) {
  event.key += event.key != ~uint64_t{0};
  return event;
}

// The end of a transfer, or of an op of the host. Events of one instant go by key; but an event that another event
// calls forth at the same instant comes after its cause, even if the cause has the greater key. `rank` is the place
// that results: the event's key, or a key above that of the cause.
struct Arrival {
  double time_s;
  uint64_t rank;
  int32_t op;
  Event at() const { return {time_s, rank}; }
};

// Merges the arrivals of several lanes in order; empties `heads`.
inline void merge(std::vector<std::span<const Arrival>>& heads, std::vector<Arrival>& merged) {
  size_t total = 0;
  for (auto head : heads) total += head.size();
  merged.resize(total);
  std::erase_if(heads, [](auto head) { return head.empty(); });
  for (Arrival& next : merged) {
    size_t first = 0;
    for (size_t i = 1; i < heads.size(); ++i) first = heads[i][0].at() < heads[first][0].at() ? i : first;
    next = heads[first][0];
    heads[first] = heads[first].subspan(1);
    if (heads[first].empty()) heads.erase(heads.begin() + static_cast<std::ptrdiff_t>(first));
  }
}

inline constexpr int max_workers = 1 << 24, max_channels = 1 << 16;

// The start of a worker goes before everything else: resource -1.
inline uint64_t event_key(int resource, int worker, int server) {
  return static_cast<uint64_t>(resource + 1) << 60 | static_cast<uint64_t>(worker) << 24 |
         static_cast<uint64_t>(server);
}
inline int key_resource(uint64_t key) { return static_cast<int>(key >> 60) - 1; }
inline int key_worker(uint64_t key) { return static_cast<int>((key >> 24) & (max_workers - 1)); }
inline int key_server(uint64_t key) { return static_cast<int>(key & 0xFFFFFF); }

// The events of this instant so far. Most instants have one event; but where an op takes no time, an event
// can call forth another of the same time that sorts before its cause, and "earlier" is not "sorts before".
class Instant {
 public:
  void add(Event event, int64_t turn) {
    if (event.time_bits != time_bits_) latest_.clear();
    time_bits_ = event.time_bits;
    while (!latest_.empty() && latest_.back().key <= event.key) latest_.pop_back();
    latest_.push_back({event.key, turn});
  }
  // The last in order among the events after the given turn: an end that was known then and sorts before this
  // has happened.
  Event latest_since(int64_t turn) const {
    Event event;
    event.time_bits = time_bits_;
    for (auto [key, when] : latest_)
      if (when > turn) {
        event.key = key;
        return event;
      }
    event.key = latest_.back().key;
    return event;
  }
  // The greatest key of this instant so far.
  uint64_t greatest() const { return latest_.front().key; }
  // Has an end that was known in the given turn happened?
  bool over(Event end, int64_t turn) const {
    return end.time_bits < time_bits_ || (latest_.back().turn > turn && end < latest_since(turn));
  }

 private:
  struct Turn {
    uint64_t key;
    int64_t turn;
  };
  uint64_t time_bits_ = ~uint64_t{0};
  std::vector<Turn> latest_;  // keys fall, turns grow
};

// A binary heap. Taking the first item leaves a hole that the next push fills: an event that ends one chunk
// mostly starts another, and one sift does for both. Call `settle` before looking at the first again.
template <class Item>
class Heap {
 public:
  void reserve(size_t n) { heap_.reserve(n); }
  bool empty() const { return heap_.size() == hole_; }
  const Item& top() const { return heap_[0]; }
  void take() { hole_ = 1; }
  void push(Item item) {
    if (hole_) {
      hole_ = 0;
      sift_down(item);
      return;
    }
    size_t i = heap_.size();
    heap_.push_back(item);
    for (; i > 0; i = (i - 1) / 2) {
      size_t parent = (i - 1) / 2;
      if (!(item < heap_[parent])) break;
      heap_[i] = heap_[parent];
    }
    heap_[i] = item;
  }
  void settle() {
    if (!hole_) return;
    hole_ = 0;
    Item last = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down(last);
  }

 private:
  void sift_down(Item item) {
    size_t i = 0, n = heap_.size();
    for (size_t child = 1; child < n; child = 2 * i + 1) {
      if (child + 1 < n) child += heap_[child + 1] < heap_[child];
      if (!(heap_[child] < item)) break;
      heap_[i] = heap_[child];
      i = child;
    }
    heap_[i] = item;
  }

  std::vector<Item> heap_;
  size_t hole_ = 0;  // 1: the first place is free
};

}  // namespace planner
