// The event loop: Algorithm 3.1 as reference.py specifies it, event for event.
#pragma once
#include <algorithm>
#include <cstdint>
#include <deque>
#include <stdexcept>
#include <utility>
#include <vector>

#include "events.hpp"
#include "generator.hpp"
#include "schedulers.hpp"
#include "sharing.hpp"
#include "steps.hpp"

namespace planner {

template <class Links>
class Simulation {
 public:
  Simulation(const Inputs& in, const Poll& poll)
      : in_(in),
        poll_(poll),
        links_(in),
        steps_(in),
        traits_(link_traits(in)),
        ops_(in.ops),
        arrived_(in.sync ? in.ops : 0, 0),
        published_(in.publishers.size(), 0),
        held_(in.publishers.size()),
        free_cores_(in.servers, in.server_cores),
        core_lines_(in.servers) {
    for (int op = 0; op < in.ops; ++op)
      ops_[op] = {in.dependent_start[op], in.dependent_start[op + 1],
                  in.lane_of(in.resource[op], in.server[op]), in.gated[op] != 0 || in.awaits[op] >= 0};
    lanes_.reserve(size_t(in.workers) * in.lanes());
    schedulers_.reserve(size_t(2) * in.workers * in.servers);
    for (int w = 0; w < in.workers; ++w) {
      for (int s = 0; s < in.servers; ++s) add_link_lane(DOWNLINK, w, s);
      add_lane(WORKER, w, -1);
      for (int s = 0; s < in.servers; ++s) add_link_lane(UPLINK, w, s);
      for (int s = 0; s < in.servers; ++s) add_lane(PS, w, s);
    }
    queue_.reserve(lanes_.size());
  }

  Result run() {
    for (int w = 0; w < in_.workers; ++w) queue_.push({in_.start_offsets_s[w], event_key(-1, w, 0)});
    std::vector<double> before(lanes_.size(), 0.0);
    bool warm = in_.warmup_steps == 0;
    double now = 0;
    for (int64_t turn = 1;; ++turn) {
      if ((turn & poll_mask) == 0) poll_();
      Event event = queue_.top();
      Event on_link = links_.next();
      bool from_queue = event < on_link;
      if (!from_queue) event = on_link;
      if (event.none()) throw std::logic_error("nothing can happen, yet workers have steps to do");
      if (event.time() > in_.max_time_s) {
        now = in_.max_time_s;
        result_.stopped = Stopped::time;
        break;
      }
      if (from_queue) queue_.take();
      now = event.time();
      process(event.key, now);
      queue_.settle();
      links_.commit(now);
      if (step_ended_) {
        step_ended_ = false;
        if (!warm && steps_.least() >= in_.warmup_steps) {
          warm = true;
          result_.measured_from_s = now;
          before = used(now);
        }
        if ((in_.until_all ? steps_.least() : steps_.most()) >= in_.steps) break;
      }
      if (result_.events >= in_.max_events) {
        result_.stopped = Stopped::events;
        break;
      }
    }
    result_.end_s = now;
    result_.used = used(now);
    for (size_t i = 0; i < before.size(); ++i) result_.used[i] -= before[i];
    steps_.move_into(result_);
    return std::move(result_);
  }

 private:
  struct OpInfo {
    int32_t dependents_begin, dependents_end;
    int32_t lane;  // among the lanes of its worker
    bool may_wait;  // sync: for other workers
  };
  struct Lane {
    int resource = 0, worker = 0, server = 0;
    bool local = false, waits_for_core = false;
    uint64_t key = 0;
    Scheduler* scheduler = nullptr;  // links
    Fifo queue;                      // computation
    Chunk chunk;
    double used = 0;  // bytes or seconds of chunks that ended
    bool on_link() const { return scheduler != nullptr; }
  };

  void add_lane(int resource, int worker, int server) {
    Lane lane;
    lane.resource = resource;
    lane.worker = worker;
    lane.server = server;
    lane.key = event_key(resource, worker, std::max(server, 0));
    lanes_.push_back(std::move(lane));
  }
  void add_link_lane(int resource, int worker, int server) {
    add_lane(resource, worker, server);
    schedulers_.emplace_back(traits_[(resource == UPLINK) * in_.servers + server]);
    lanes_.back().scheduler = &schedulers_.back();
    lanes_.back().local = in_.local[size_t(worker) * in_.servers + server] != 0;
  }
  Lane& lane_at(int worker, int lane) { return lanes_[size_t(worker) * in_.lanes() + lane]; }
  static int direction(const Lane& lane) { return lane.resource == UPLINK; }

  void process(uint64_t key, double now) {
    int worker = key_worker(key), resource = key_resource(key);
    if (resource < 0)
      start_random_step(worker, now);
    else
      end_of_chunk(lane_at(worker, in_.lane_of(resource, key_server(key))), now);
    for (size_t i = 0; i < idle_.size(); ++i)
      if (idle_[i]->chunk.op < 0) start_chunk(*idle_[i], now);
    idle_.clear();
  }

  void start_random_step(int worker, double now) {
    steps_.begin(worker, now);
    for (int32_t op : steps_.roots(worker)) ready(worker, op);
  }

  void ready(int worker, int32_t op) {
    if (ops_[op].may_wait && must_wait(worker, op)) return;
    enqueue(worker, op);
  }

  // sync: an update waits for its peers, a download for the last update of its tensor.
  bool must_wait(int worker, int32_t op) {
    if (in_.gated[op]) {
      if (++arrived_[op] < in_.workers) return true;
      arrived_[op] = 0;
      for (int w = 0; w < in_.workers; ++w) enqueue(w, op);
      return true;
    }
    int32_t tensor = in_.awaits[op];
    if (published_[tensor] >= steps_.now(worker) * in_.publishers[tensor]) return false;
    held_[tensor].push_back({worker, op});
    return true;
  }

  void enqueue(int worker, int32_t op) {
    Lane& lane = lane_at(worker, ops_[op].lane);
    if (lane.on_link())
      lane.scheduler->add(op);
    else
      lane.queue.push(op);
    if (lane.chunk.op < 0) idle_.push_back(&lane);
  }

  void start_chunk(Lane& lane, double now) {
    Chunk& chunk = lane.chunk;
    if (lane.on_link()) {
      if (!lane.scheduler->take(now, chunk)) return;
      chunk.start_s = now;
      chunk.flowing = false;
      if (chunk.ready_s > now)
        queue_.push({chunk.ready_s, lane.key});
      else
        start_flow(lane, now);
      return;
    }
    if (lane.queue.empty()) return;
    if (lane.resource == PS && !take_core(lane)) return;
    chunk.op = lane.queue.pop();
    chunk.start_s = now;
    queue_.push({now + steps_.duration(lane.worker, chunk.op, lane.resource == WORKER), lane.key});
  }

  bool take_core(Lane& lane) {
    if (lane.waits_for_core) return false;
    if (free_cores_[lane.server] < 1) {
      lane.waits_for_core = true;
      core_lines_[lane.server].push_back(&lane);
      return false;
    }
    --free_cores_[lane.server];
    return true;
  }

  void release_core(int server) {
    ++free_cores_[server];
    auto& line = core_lines_[server];
    if (line.empty()) return;
    line.front()->waits_for_core = false;
    idle_.insert(idle_.begin(), line.front());
    line.pop_front();
  }

  void start_flow(Lane& lane, double now) {
    lane.chunk.flow_s = now;
    lane.chunk.flowing = true;
    if (lane.local)
      queue_.push({now + lane.chunk.size / in_.local_bytes_per_s, lane.key});
    else
      links_.start(now, direction(lane), lane.worker, lane.server, lane.chunk.size,
                   steps_.weight(lane.worker, direction(lane), lane.server));
  }

  void end_of_chunk(Lane& lane, double now) {
    Chunk& chunk = lane.chunk;
    int32_t op = chunk.op;
    bool last = true;
    if (lane.on_link()) {
      if (!chunk.flowing) {  // only its overhead is over
        start_flow(lane, now);
        return;
      }
      if (!lane.local) links_.finish(now, direction(lane), lane.worker, lane.server);
      lane.used += chunk.size;
      lane.scheduler->done(chunk);
      last = chunk.last;
    } else {
      lane.used += now - chunk.start_s;
    }
    ++result_.events;
    if (in_.timeline) record(lane, now);
    chunk.op = -1;
    idle_.push_back(&lane);
    if (lane.resource == PS) release_core(lane.server);
    if (last) end_of_op(lane.worker, op, now);
  }

  void end_of_op(int worker, int32_t op, double now) {
    if (in_.sync) publish(op);
    const OpInfo& info = ops_[op];
    if (info.dependents_end - info.dependents_begin == 1) {
      int32_t dependent = in_.dependent_index[info.dependents_begin];
      if (steps_.release(worker, dependent)) ready(worker, dependent);
    } else {
      for (int32_t dependent : steps_.release_all(worker, info.dependents_begin, info.dependents_end))
        ready(worker, dependent);
    }
    if (!steps_.op_ended(worker)) return;
    steps_.end(worker, now);
    step_ended_ = true;
    if (steps_.ended(worker) < in_.steps) start_random_step(worker, now);
  }

  void publish(int32_t op) {
    int32_t tensor = in_.publishes[op];
    if (tensor < 0 || ++published_[tensor] % in_.publishers[tensor] != 0) return;
    auto& held = held_[tensor];
    std::stable_sort(held.begin(), held.end(), [](auto& a, auto& b) { return a.first < b.first; });
    for (auto [worker, download] : held) enqueue(worker, download);
    held.clear();
  }

  void record(const Lane& lane, double now) {
    const Chunk& chunk = lane.chunk;
    result_.timeline.push_back({lane.worker, lane.resource, lane.server, chunk.op,
                                static_cast<int32_t>(steps_.now(lane.worker)),
                                lane.on_link() ? chunk.size : 0.0, chunk.start_s,
                                lane.on_link() ? chunk.flow_s : chunk.start_s, now});
  }

  std::vector<double> used(double now) {
    std::vector<double> out;
    out.reserve(lanes_.size());
    for (const Lane& lane : lanes_) {
      double running = 0;
      if (lane.chunk.op >= 0) {
        if (!lane.on_link())
          running = now - lane.chunk.start_s;
        else if (lane.chunk.flowing && !lane.local)
          running = links_.delivered(now, direction(lane), lane.worker, lane.server);
      }
      out.push_back(lane.used + running);
    }
    return out;
  }

  const Inputs& in_;
  const Poll& poll_;
  Links links_;
  Steps steps_;
  std::vector<LinkTraits> traits_;
  std::vector<OpInfo> ops_;
  std::vector<Lane> lanes_;
  std::vector<Scheduler> schedulers_;
  EventQueue queue_;           // ends that are known for good
  std::vector<Lane*> idle_;    // lanes that may start a chunk at the end of this event
  std::vector<int> arrived_;   // sync: at how many workers a gated op is ready
  std::vector<int64_t> published_;  // sync: updates of a tensor that ended, ever
  std::vector<std::vector<std::pair<int, int32_t>>> held_;  // sync: downloads that wait, per tensor
  std::vector<int64_t> free_cores_;
  std::vector<std::deque<Lane*>> core_lines_;
  bool step_ended_ = false;
  Result result_;
};

}  // namespace planner
