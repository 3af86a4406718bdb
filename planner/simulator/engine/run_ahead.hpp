// Run-ahead: the end of a worker's computation is no event until something outside can see the end.
//
// The ends that can be seen ("visible") are those that unlock a transfer or an update, and the last of a step.
// A "feeder" is a transfer or an update that computation waits for. Until the feeders that every visible end
// depends on are in, nothing can be seen, and computation only has to catch up when a feeder arrives. From then
// on computation runs ahead: to the end of the step if all feeders are in, else to the next visible end; ops that ran
// too early are undone when another feeder arrives.
#pragma once
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "events.hpp"
#include "feeders.hpp"
#include "steps.hpp"

namespace planner {

class RunAheadCompute {
 public:
  struct Visible {
    double end_s;
    int32_t op;
    bool last;  // the op ends the step
  };

  RunAheadCompute(const Inputs& in, const Feeders& feeders, Steps& steps, bool used)
      : in_(in), feeders_(feeders), steps_(steps) {
    if (!used) return;
    inner_ = Edges::select(in, [&in](int32_t op, int32_t dependent) {
      return in.resource[op] == WORKER && in.resource[dependent] == WORKER;
    });
    outer_ = Edges::select(in, [&in](int32_t op, int32_t dependent) {
      return in.resource[op] == WORKER && in.resource[dependent] != WORKER;
    });
    for (int32_t op : outer_.index) uploads_only_ = uploads_only_ && in.resource[op] == UPLINK && !may_wait(in, op);
    // No other op may queue an upload meanwhile: that upload would overtake.
    for (int32_t op = 0; op < in.ops; ++op)
      for (int32_t dependent : in.dependents(op))
        if (in.resource[op] != WORKER && in.resource[dependent] == UPLINK) uploads_only_ = false;
    links_.resize(in.ops);
    for (int32_t op = 0; op < in.ops; ++op) {
      ops_ += in.resource[op] == WORKER;
      auto inner = inner_.of(op);
      links_[op] = {inner.size() == 1 && in.waiting[inner[0]] == 1 ? inner[0] : -1, !outer_.of(op).empty()};
    }
    lanes_.resize(in.workers);
    for (int w = 0; w < in.workers; ++w) {
      Lane& lane = lanes_[w];
      lane.worker = w;
      lane.key = event_key(WORKER, w, 0);
      lane.queue.resize(ops_);
      lane.ends_s.resize(ops_);
    }
  }

  std::span<const int32_t> unlocked_by(int32_t op) const { return outer_.of(op); }
  bool shows_uploads_only() const { return uploads_only_; }

  void begin(int w, double now, int64_t turn) {
    Lane& lane = lanes_[w];
    lane.used_s += used_in_step(lane, infinity);
    lane.ended += lane.head;
    lane.head = lane.tail = lane.settled = 0;
    lane.feeders = feeders_.count;
    lane.required = feeders_.required_count;
    lane.begin_s = now;
    lane.idle_s = 0;
    lane.turn = turn;
    lane.visible.clear();
    lane.next = 0;
    lane.rank = lane.key;
  }
  void enqueue(int w, int32_t op, double now) {
    Lane& lane = lanes_[w];
    lane.queue[lane.tail++] = op;
    if (!lane.running) start_after_pause(lane, now);
  }
  int64_t turn(int w) const { return lanes_[w].turn; }

  // A feeder has ended: all ends before `bound` happen, no end after `bound` has happened.
  void arrive(int w, int32_t feeder, Event bound, int64_t turn) {
    Lane& lane = lanes_[w];
    advance(lane, bound);
    undo(lane, bound);
    lane.settled = lane.over();
    lane.turn = turn;
    --lane.feeders;
    lane.required -= feeders_.required[feeder];
  }

  // Several feeders that ended one after the other, before anything can be seen.
  void feed(int w, std::span<const Arrival> arrivals, int64_t turn) {
    if (arrivals.empty()) return;  // computation may have run ahead already
    Lane& lane = lanes_[w];
    for (const Arrival& arrival : arrivals) {
      while (lane.running && Event(lane.ends_s[lane.head - 1], lane.rank) < arrival.at()) finish(lane);
      --lane.feeders;
      lane.required -= feeders_.required[arrival.op];
      release(lane, in_.dependents(arrival.op));
      if (lane.running || lane.head == lane.tail) continue;
      lane.rank = std::max(lane.key, arrival.rank);
      start_after_pause(lane, arrival.time_s);
    }
    lane.settled = lane.over();
    lane.turn = turn;
  }

  bool has_visible(int w) {
    Lane& lane = lanes_[w];
    if (lane.next == lane.visible.size() && lane.required == 0) run_ahead(lane);
    return lane.next < lane.visible.size();
  }
  Event next_visible(int w) const {
    const Lane& lane = lanes_[w];
    return {lane.ends_s[lane.visible[lane.next]], lane.key};
  }
  Visible take_visible(int w) {
    Lane& lane = lanes_[w];
    int32_t place = lane.visible[lane.next++];
    lane.settled = std::max(lane.settled, place + 1);
    return {lane.ends_s[place], lane.queue[place], place + 1 == ops_};
  }

  // Seconds of computation up to `now`, and ends up to `event`; what ran ahead does not count yet.
  double used_s(int w, double now) {
    Lane& lane = lanes_[w];
    advance(lane, {now, lane.key});
    return lane.used_s + used_in_step(lane, now);
  }
  int64_t ends_until(int w, Event event) {
    Lane& lane = lanes_[w];
    advance(lane, event);
    auto later = std::partition_point(lane.ends_s.begin(), lane.ends_s.begin() + lane.head,
                                      [&](double end_s) { return Event(end_s, lane.key) < event; });
    return lane.ended + (later - lane.ends_s.begin());
  }

 private:
  static constexpr int burst = 32;  // ops run ahead at a time, while they may have to be undone

  // The ops of a step in the order in which they run, and the ends of those that have started.
  struct Lane {
    uint64_t key = 0;
    uint64_t rank = 0;          // of the next end, if it takes no time (see Arrival)
    int worker = 0;
    bool running = false;       // the op before `head` is running; else that op has ended
    int32_t head = 0, tail = 0;
    int32_t settled = 0;        // ops whose ends will not be undone
    int feeders = 0, required = 0;  // feeders still to come, and required ones among them
    int64_t turn = 0;           // of the event loop, when something last came in
    double begin_s = 0, idle_s = 0, used_s = 0;
    int64_t ended = 0;          // ops that ended in earlier steps
    std::vector<int32_t> queue;
    std::vector<double> ends_s;
    std::vector<int32_t> visible;  // places in the queue
    size_t next = 0;
    int32_t over() const { return head - running; }
  };
  // What the end of an op does: `next` if all it unlocks is one op that waits for nothing else.
  struct Link {
    int32_t next;
    bool shows;
  };

  static bool may_wait(const Inputs& in, int32_t op) {
    return in.gated[op] != 0 || in.awaits[op] >= 0 || in.scope[op] >= 0;
  }
  void start(Lane& lane, double now) {
    int32_t op = lane.queue[lane.head];
    double end_s = lane.ends_s[lane.head++] = now + steps_.duration(lane.worker, op, true);
    if (end_s != now) lane.rank = lane.key;
    lane.running = true;
  }
  void start_after_pause(Lane& lane, double now) {
    lane.idle_s += now - (lane.head > 0 ? lane.ends_s[lane.head - 1] : lane.begin_s);
    start(lane, now);
  }
  void finish(Lane& lane) {
    int32_t place = lane.head - 1, op = lane.queue[place];
    Link link = links_[op];
    if (link.shows || place + 1 == ops_) lane.visible.push_back(place);
    if (link.next >= 0)
      lane.queue[lane.tail++] = link.next;
    else
      release(lane, inner_.of(op));
    if (lane.head == lane.tail)
      lane.running = false;
    else
      start(lane, lane.ends_s[place]);
  }
  void release(Lane& lane, std::span<const int32_t> dependents) {
    if (dependents.size() < 2 || steps_.compute_by_name()) {
      for (int32_t dependent : dependents)
        if (steps_.release(lane.worker, dependent)) lane.queue[lane.tail++] = dependent;
    } else {
      for (int32_t dependent : steps_.release_all(lane.worker, dependents)) lane.queue[lane.tail++] = dependent;
    }
  }
  void advance(Lane& lane, Event bound) {
    while (lane.running && Event(lane.ends_s[lane.head - 1], lane.key) < bound) finish(lane);
  }
  void run_ahead(Lane& lane) {
    if (lane.feeders == 0 && lane.running) return run_to_end(lane);
    for (int left = burst; lane.running && lane.next == lane.visible.size(); --left) {
      finish(lane);
      if (left == 0 && lane.next == lane.visible.size()) lane.visible.push_back(lane.over() - 1);
    }
  }
  // `finish` until nothing is left: most ops are in chains with nothing beside them.
  void run_to_end(Lane& lane) {
    const double *durations = steps_.durations(lane.worker), speed = steps_.speed(lane.worker);
    int32_t *queue = lane.queue.data(), head = lane.head, op = queue[head - 1];
    double *ends_s = lane.ends_s.data(), end_s = ends_s[head - 1];
    for (;;) {
      Link link = links_[op];
      if (link.shows || head == ops_) lane.visible.push_back(head - 1);
      if (link.next >= 0 && head == lane.tail) {
        op = queue[lane.tail++] = link.next;
      } else {
        if (link.next >= 0)
          queue[lane.tail++] = link.next;
        else
          release(lane, inner_.of(op));
        if (head == lane.tail) break;
        op = queue[head];
      }
      end_s += speed == 1 ? durations[op] : durations[op] / speed;
      ends_s[head++] = end_s;
    }
    lane.head = head;
    lane.running = false;
  }
  void undo(Lane& lane, Event bound) {
    while (lane.over() > lane.settled && !(Event(lane.ends_s[lane.over() - 1], lane.key) < bound)) {
      int32_t op = lane.queue[lane.over() - 1];
      if (links_[op].next >= 0)
        --lane.tail;
      else
        for (int32_t dependent : inner_.of(op)) lane.tail -= steps_.hold(lane.worker, dependent);
      lane.head -= lane.running;
      lane.running = true;
    }
    while (lane.visible.size() > lane.next && lane.visible.back() >= lane.over()) lane.visible.pop_back();
  }
  // Computation pauses only while it waits for an arrival, so the last end and the pauses give the busy time.
  static double used_in_step(const Lane& lane, double now) {
    return lane.head == 0 ? 0.0 : std::min(now, lane.ends_s[lane.head - 1]) - lane.begin_s - lane.idle_s;
  }

  const Inputs& in_;
  const Feeders& feeders_;
  Steps& steps_;
  Edges inner_, outer_;
  std::vector<Link> links_;
  int32_t ops_ = 0;
  bool uploads_only_ = true;
  std::vector<Lane> lanes_;
};

}  // namespace planner
