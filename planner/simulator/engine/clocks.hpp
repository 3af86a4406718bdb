// Virtual time: clocks, and the flows that go by them, as sharing.py defines them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "events.hpp"

namespace planner {

struct Clock;

// The event that is being processed; the turn tells events apart that have the same time and key.
struct Now {
  Event event{0.0, 0};
  int64_t turn = 0;
  Instant instant;
  void begin(Event begun) {
    event = begun;
    instant.add(begun, turn);
  }
  double time() const { return event.time(); }
  // Whether an end that was already known in the given turn has happened.
  bool over(Event end, int64_t known_in) const {
    return known_in != turn && end < after(instant.latest_since(known_in));
  }
  mutable int64_t remembered = 0;  // entries that clocks put into their pasts since pasts were last shortened
};

// The chunk that a lane is sending; it has arrived when the clock reaches `target`.
struct Flow {
  Clock* clock = nullptr;  // none: the flow does not run, or has no rate yet
  double target = 0, weight = 1, size = 0;
  double origin = 0;    // the target of the chunk with which the flow came to this clock
  double followed = 0;  // bytes of chunks that followed that chunk without a pause
  double rest = 0;      // bytes of later chunks that are known already (periods.hpp)
  uint64_t key = 0;     // of the flow's events
  uint32_t place = 0;
  int64_t epoch = 0;  // of the clock, up to which the chunk is known not to have ended (periods.hpp)

  // Puts the flow on a clock that stands at `virtual_bytes`, with `left` bytes of the chunk to send.
  void set_out(double virtual_bytes, double left) {
    target = origin = virtual_bytes + left / weight;
    followed = 0;
  }
  // The next chunk of the lane follows at once.
  void follow(double bytes) {
    size = bytes;
    followed += bytes;
    target = origin + followed / weight;
  }
  double delivered(double now) const;
  // The virtual time at which the lane must be looked at: the end of all known chunks. Sums of bytes are exact.
  double alarm() const { return origin + (followed + rest) / weight; }
};

// A stretch of a clock's past, until an event changed the level. An end at the very time of the change comes after
// the events of that instant so far, whatever keys these have: `set_after` is the greatest of these events.
struct Past {
  double virtual_bytes, since, pace;
  uint64_t set_after;
  Event until;  // an end that was known and sorts before this event happened before the change
  double end(double target) const { return std::max(since + (target - virtual_bytes) * pace, since); }
};

// The virtual time of flows that share a limit: `virtual_bytes` at the time `since`, growing at `level`.
struct Clock {
  double virtual_bytes = 0, since = 0;
  double level = 0, pace = 0;  // bytes per second for a flow of weight 1, and its inverse
  std::vector<Past> past;      // empty where the clock keeps no past
  int64_t forgotten = 0;       // entries dropped from the front of `past`
  int64_t changed_in = -1;     // the turn of the last change
  uint64_t set_after = 0;      // as in Past
  bool remembers = false;
  Event first;  // the first end of the clock's flows; kept up to date by the owner of several clocks
  bool looked_at = false, listed = false;

  bool empty() const { return heap_.empty(); }
  double at(double now) const { return virtual_bytes + (now - since) * level; }
  double end(double target) const { return std::max(since + (target - virtual_bytes) * pace, since); }
  int64_t epoch() const { return forgotten + static_cast<int64_t>(past.size()); }
  // The virtual time at the beginning of a later epoch, if that epoch is in the past. (A caller that skips epochs may
  // skip the right one if the time rounds by more than a chunk takes.)
  double later(int64_t from, int64_t by) const {
    return from + by < epoch() ? past[static_cast<size_t>(from + by - forgotten)].virtual_bytes : infinity;
  }

  void set(const Now& now, double bytes) {
    if (remembers) remember(now);
    virtual_bytes = bytes;
    since = now.time();
  }
  void tick(const Now& now) { set(now, empty() ? 0 : at(now.time())); }
  // Only after `set` or `tick` in the same event.
  void run_at(double bytes_per_s) {
    if (bytes_per_s == level) return;
    level = bytes_per_s;
    pace = 1.0 / level;
  }
  void forget() {
    forgotten += static_cast<int64_t>(past.size());
    past.clear();
  }

  void add(Flow& flow) {
    flow.clock = this;
    flow.epoch = epoch();
    heap_.push_back({});
    rise({flow.alarm(), &flow}, heap_.size() - 1);
  }
  void remove(Flow& flow) {
    flow.clock = nullptr;
    Item last = heap_.back();
    heap_.pop_back();
    if (last.flow != &flow) settle(last, flow.place);
  }
  // The alarm of a clock has changed.
  void moved(Flow& flow) { settle({flow.alarm(), &flow}, flow.place); }

  // The first alarm, by time and then by key.
  Event next() const {
    if (heap_.empty()) return {};
    Event first(end(heap_[0].at), heap_[0].flow->key);
    for (size_t child = 1; child < std::min<size_t>(3, heap_.size()); ++child) find_tie(child, first);
    return first;
  }
  template <class Do>
  void for_all(Do action) const {
    for (const Item& item : heap_) action(*item.flow);
  }

 private:
  struct Item {
    double at;
    Flow* flow;
    bool operator<(const Item& other) const {
      return at < other.at || (at == other.at && flow->key < other.flow->key);
    }
  };
  void remember(const Now& now) {
    if (changed_in == now.turn) return;
    if (!empty()) {
      past.push_back({virtual_bytes, since, pace, set_after, now.instant.latest_since(changed_in)});
      ++now.remembered;
    }
    changed_in = now.turn;
    set_after = now.instant.greatest();
  }
  void put(Item item, size_t place) {
    heap_[place] = item;
    item.flow->place = static_cast<uint32_t>(place);
  }
  void settle(Item item, size_t i) {
    if (i > 0 && item < heap_[(i - 1) / 2])
      rise(item, i);
    else
      sink(item, i);
  }
  void rise(Item item, size_t i) {
    for (; i > 0 && item < heap_[(i - 1) / 2]; i = (i - 1) / 2) put(heap_[(i - 1) / 2], i);
    put(item, i);
  }
  void sink(Item item, size_t i) {
    size_t n = heap_.size();
    for (size_t child = 2 * i + 1; child < n; child = 2 * i + 1) {
      if (child + 1 < n) child += heap_[child + 1] < heap_[child];
      if (!(heap_[child] < item)) break;
      put(heap_[child], i);
      i = child;
    }
    put(item, i);
  }
  // Different virtual times may round to one time.
  void find_tie(size_t i, Event& first) const {
    Event event(end(heap_[i].at), heap_[i].flow->key);
    if (event.time_bits > first.time_bits) return;
    first = std::min(first, event);
    for (size_t child = 2 * i + 1; child < std::min(2 * i + 3, heap_.size()); ++child) find_tie(child, first);
  }

  std::vector<Item> heap_;
};

inline double Flow::delivered(double now) const { return size - (target - clock->at(now)) * weight; }

}  // namespace planner
