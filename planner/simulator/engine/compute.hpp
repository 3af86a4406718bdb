// The fast path: a worker's computation is advanced only when something outside needs it.
//
// It applies where computation takes in nothing but downloads, and gives out nothing before the last of them:
// (1) what a worker op depends on is a worker op or a download; (2) a worker op that unlocks anything else
// depends, through others, on every download that feeds computation. Then, until the last such download,
// computation only has to catch up when one arrives; and from then on it can run ahead to its end, leaving
// the ends that unlock something as events at their times.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "events.hpp"
#include "steps.hpp"

namespace planner {

// A list of ops for each op.
struct Edges {
  std::vector<int32_t> start, index;
  std::span<const int32_t> of(int32_t op) const {
    return {index.data() + start[op], static_cast<size_t>(start[op + 1] - start[op])};
  }
  template <class Keep>
  static Edges select(const Inputs& in, Keep keep) {
    Edges edges;
    edges.start.push_back(0);
    for (int32_t op = 0; op < in.ops; ++op) {
      for (int32_t i = in.dependent_start[op]; i < in.dependent_start[op + 1]; ++i)
        if (keep(op, in.dependent_index[i])) edges.index.push_back(in.dependent_index[i]);
      edges.start.push_back(static_cast<int32_t>(edges.index.size()));
    }
    return edges;
  }
};

inline bool feeds_computation(const Inputs& in, int32_t op) {
  if (in.resource[op] != DOWNLINK) return false;
  for (int32_t i = in.dependent_start[op]; i < in.dependent_start[op + 1]; ++i)
    if (in.resource[in.dependent_index[i]] == WORKER) return true;
  return false;
}

// Do the two conditions hold? Sets of downloads are bits; ops are visited after all they depend on.
inline bool computation_is_separable(const Inputs& in) {
  std::vector<int32_t> feeder(in.ops, -1);
  int feeders = 0;
  for (int32_t op = 0; op < in.ops; ++op) {
    if (feeds_computation(in, op)) feeder[op] = feeders++;
    if (in.resource[op] == DOWNLINK || in.resource[op] == WORKER) continue;
    for (int32_t i = in.dependent_start[op]; i < in.dependent_start[op + 1]; ++i)
      if (in.resource[in.dependent_index[i]] == WORKER) return false;
  }
  size_t words = (size_t(feeders) + 63) / 64;
  if (words * in.ops > (size_t(1) << 27)) return false;  // a gigabyte of bits: not worth it
  std::vector<uint64_t> needs(words * in.ops, 0);
  std::vector<int32_t> waiting(in.waiting.begin(), in.waiting.end());
  std::vector<int32_t> ready(in.roots.begin(), in.roots.end());
  while (!ready.empty()) {
    int32_t op = ready.back();
    ready.pop_back();
    uint64_t* mine = needs.data() + words * op;
    if (feeder[op] >= 0) mine[feeder[op] / 64] |= uint64_t{1} << (feeder[op] % 64);
    int64_t needed = 0;
    for (size_t k = 0; k < words; ++k) needed += std::popcount(mine[k]);
    for (int32_t i = in.dependent_start[op]; i < in.dependent_start[op + 1]; ++i) {
      int32_t dependent = in.dependent_index[i];
      if (in.resource[op] == WORKER && in.resource[dependent] != WORKER && needed < feeders) return false;
      uint64_t* theirs = needs.data() + words * dependent;
      for (size_t k = 0; k < words; ++k) theirs[k] |= mine[k];
      if (--waiting[dependent] == 0) ready.push_back(dependent);
    }
  }
  return true;
}

class LazyCompute {
 public:
  struct Visible {  // the end of an op that unlocks something else, or of the last op of the step
    double end_s;
    int32_t op;
    bool last;
  };

  LazyCompute(const Inputs& in, Steps& steps, bool used) : steps_(steps) {
    if (!used) return;
    inner_ = Edges::select(in, [&in](int32_t op, int32_t dependent) {
      return in.resource[op] == WORKER && in.resource[dependent] == WORKER;
    });
    outer_ = Edges::select(in, [&in](int32_t op, int32_t dependent) {
      return in.resource[op] == WORKER && in.resource[dependent] != WORKER;
    });
    for (int32_t op : outer_.index) uploads_only_ = uploads_only_ && in.resource[op] == UPLINK;
    lanes_.resize(in.workers);
    for (int32_t op = 0; op < in.ops; ++op) {
      ops_ += in.resource[op] == WORKER;
      feeders_ += feeds_computation(in, op);
    }
    for (int w = 0; w < in.workers; ++w) {
      Lane& lane = lanes_[w];
      lane.key = event_key(WORKER, w, 0);
      lane.queue.resize(ops_);
      lane.ends_s.reserve(ops_);
    }
  }

  std::span<const int32_t> unlocked_by(int32_t op) const { return outer_.of(op); }

  void begin(int w) {
    Lane& lane = lanes_[w];
    lane.head = lane.tail = 0;
    lane.feeders = feeders_;
    lane.ends_s.clear();
    lane.visible.clear();
    lane.next = 0;
  }
  void enqueue(int w, int32_t op, double now) {
    Lane& lane = lanes_[w];
    lane.queue[lane.tail++] = op;
    if (lane.op < 0) start(lane, w, now);
  }
  // All ends before `event` happen; none of them unlocks anything outside.
  void catch_up(int w, Event event) {
    Lane& lane = lanes_[w];
    while (lane.op >= 0 && Event(lane.end_s, lane.key) < event) finish(lane, w);
  }
  // A download that feeds computation has ended. True if it was the last: nothing more comes in.
  bool fed(int w) { return --lanes_[w].feeders == 0; }
  bool closed(int w) const { return lanes_[w].feeders == 0; }
  void run_ahead(int w) {
    Lane& lane = lanes_[w];
    while (lane.op >= 0) {
      int32_t op = lane.op;
      double end_s = lane.end_s;
      finish(lane, w);
      lane.ends_s.push_back(end_s);
      if (lane.op < 0 || outer_.start[op] != outer_.start[op + 1]) lane.visible.push_back({end_s, op, lane.op < 0});
    }
  }
  bool has_visible(int w) const { return lanes_[w].next < lanes_[w].visible.size(); }
  Event next_visible(int w) const { return {lanes_[w].visible[lanes_[w].next].end_s, lanes_[w].key}; }
  bool shows_uploads_only() const { return uploads_only_; }
  Visible take_visible(int w) { return lanes_[w].visible[lanes_[w].next++]; }

  // Seconds of computation up to `now` and ends up to `event`; what ran ahead does not count yet.
  double used_s(int w, double now) {
    Lane& lane = lanes_[w];
    if (lane.ends_s.empty()) {
      catch_up(w, {now, lane.key});
      return lane.used_s + (lane.op >= 0 ? now - lane.start_s : 0.0);
    }
    return lane.used_s - std::max(0.0, lane.ends_s.back() - now);  // it never pauses once it runs ahead
  }
  int64_t ends_until(int w, Event event) {
    Lane& lane = lanes_[w];
    catch_up(w, event);
    auto later = std::partition_point(lane.ends_s.begin(), lane.ends_s.end(),
                                      [&](double end_s) { return Event(end_s, lane.key) < event; });
    return lane.ended - (lane.ends_s.end() - later);
  }

 private:
  struct Lane {
    uint64_t key = 0;
    int32_t op = -1;  // running
    int32_t head = 0, tail = 0;
    int feeders = 0;  // downloads still to come
    double start_s = 0, end_s = 0, used_s = 0;
    int64_t ended = 0;
    std::vector<int32_t> queue;
    std::vector<double> ends_s;  // of this step, since it ran ahead
    std::vector<Visible> visible;
    size_t next = 0;
  };

  void start(Lane& lane, int w, double now) {
    lane.op = -1;
    if (lane.head == lane.tail) return;
    lane.op = lane.queue[lane.head++];
    lane.start_s = now;
    lane.end_s = now + steps_.duration(w, lane.op, true);
  }
  void finish(Lane& lane, int w) {
    lane.used_s += lane.end_s - lane.start_s;
    ++lane.ended;
    auto dependents = inner_.of(lane.op);
    if (dependents.size() == 1 || steps_.compute_by_name()) {
      for (int32_t dependent : dependents)
        if (steps_.release(w, dependent)) lane.queue[lane.tail++] = dependent;
    } else if (dependents.size() > 1) {
      for (int32_t dependent : steps_.release_all(w, dependents)) lane.queue[lane.tail++] = dependent;
    }
    start(lane, w, lane.end_s);
  }

  Steps& steps_;
  Edges inner_, outer_;
  int ops_ = 0, feeders_ = 0;
  bool uploads_only_ = true;
  std::vector<Lane> lanes_;
};

}  // namespace planner
