// A lane: what one worker runs on one resource, a queue and at most one chunk.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "clocks.hpp"
#include "schedulers.hpp"

namespace planner {

struct Lane {
  int resource = 0, worker = 0, server = 0;
  int pool = -1;  // the pool of cores from which the lane's ops take one; -1: none
  bool local = false, waits_for_core = false;
  bool marked = false;    // listed among the idle lanes that may start a chunk
  bool deferred = false;  // run-ahead: ends wait to be shown
  double shows_s = -1;    // run-ahead: when the queue has its next end
  uint64_t key = 0;
  Scheduler* scheduler = nullptr;  // links
  Flow* flow = nullptr;            // links, unless local
  Fifo queue;                      // computation
  Chunk chunk;
  double used = 0;  // bytes or seconds of chunks that ended
  bool on_link() const { return scheduler != nullptr; }
  void enqueue(int32_t op) {
    if (on_link())
      scheduler->add(op);
    else
      queue.push(op);
  }

  // known_updates: the updates of this step, by their starts and ends. The queue holds those that unlock something.
  std::vector<double> starts_s, ends_s;
  bool last_unlocks = false;
  int64_t turn = 0;     // of the event loop, when the last update was queued
  int64_t updates = 0;  // updates of earlier steps
  void begin_updates() {
    for (size_t i = 0; i < ends_s.size(); ++i) used += ends_s[i] - starts_s[i];
    updates += static_cast<int64_t>(ends_s.size());
    starts_s.clear();
    ends_s.clear();
  }
  double add_update(double now, double duration_s) {
    double start_s = ends_s.empty() ? now : std::max(now, ends_s.back());
    starts_s.push_back(start_s);
    ends_s.push_back(start_s + duration_s);
    return ends_s.back();
  }
  int64_t updates_until(Event event) const {
    int64_t ended = updates;
    for (double end_s : ends_s) ended += Event(end_s, key) < event;
    return ended;
  }
  double updating_until(double now) const {
    double seconds = used;
    for (size_t i = 0; i < ends_s.size(); ++i) seconds += std::max(0.0, std::min(now, ends_s[i]) - starts_s[i]);
    return seconds;
  }
};

// All lanes, worker by worker as Inputs::lane_of numbers them; `schedulers` are those of the links. Links, and
// computation that runs ahead, have queues of their own.
template <class Links>
std::vector<Lane> lanes_of(const Inputs& in, std::vector<Scheduler>& schedulers, const std::vector<LinkTraits>& traits,
                           Links& links, bool ahead) {
  std::vector<size_t> ops_on_lane(in.lanes(), 0);
  for (int op = 0; op < in.ops; ++op) ++ops_on_lane[in.lane_of(in.resource[op], in.server[op])];
  std::vector<Lane> lanes(size_t(in.workers) * in.lanes());
  schedulers.reserve(size_t(2) * in.workers * in.channels);
  for (int w = 0; w < in.workers; ++w) {
    auto place = [&](int resource, int channel) -> Lane& {
      int number = in.lane_of(resource, channel);
      Lane& lane = lanes[size_t(w) * in.lanes() + number];
      lane.resource = resource;
      lane.worker = w;
      lane.server = channel;
      lane.key = event_key(resource, w, std::max(channel, 0));
      if (resource != DOWNLINK && resource != UPLINK && !(ahead && resource == WORKER))
        lane.queue.reserve(ops_on_lane[number]);
      return lane;
    };
    place(WORKER, -1);
    place(HOST, -1).pool = in.host_pool[w];
    for (int c = 0; c < in.channels; ++c) {
      place(PS, c).pool = in.server_pool[c];
      for (int resource : {DOWNLINK, UPLINK}) {
        Lane& lane = place(resource, c);
        schedulers.emplace_back(traits[(resource == UPLINK) * in.channels + c]);
        lane.scheduler = &schedulers.back();
        lane.local = in.local[size_t(w) * in.channels + c] != 0;
        lane.flow = &links.flow(resource == UPLINK, w, c);
      }
    }
  }
  return lanes;
}

}  // namespace planner
