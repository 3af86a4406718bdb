// The fast path for what a training step mostly is: download everything, compute, upload, update.
//
// Where computing waits for all downloads and uploads wait for computing alone (training_step.hpp), the only
// events that other workers can see are the beginning and the end of a period in which a lane sends one chunk
// after the other. When the lane's chunks ended within a period follows from the clock's past, and is worked out when
// somebody asks: at the end of the downloads, computing is run at once (processor.hpp), and so are the updates at
// the end of the uploads. All times are those of reference.py, bit for bit.
#pragma once
#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "clocks.hpp"
#include "event_loop.hpp"
#include "events.hpp"
#include "link_lane.hpp"
#include "processor.hpp"
#include "sharing.hpp"
#include "steps.hpp"
#include "training_step.hpp"

namespace planner {

template <class Shares>
class Periods : public EventLoop<Periods<Shares>> {
 public:
  static bool applies(const Inputs& in, const TrainingStep& step) {
    if (in.timeline || in.max_events != std::numeric_limits<int64_t>::max() || in.tied) return false;
    if (!in.cores_abound() || in.policy.kind == Kind::blocks) return false;
    if (in.policy.overhead_s[0] > 0 || in.policy.overhead_s[1] > 0 || !in.latency.empty()) return false;
    return step.fits && !hosts_upload_at_once(in);
  }

  Periods(const Inputs& in, const TrainingStep& step, const Poll& poll)
      : in_(in),
        step_(step),
        poll_(poll),
        links_(in, now_, true, true),
        steps_(in, 0, step.opening),
        compute_(in, step, WORKER, -1),
        host_(in, step, HOST, -1),
        traits_(link_traits(in)),
        workers_(in.workers),
        updating_s_(size_t(in.workers) * in.channels, 0.0),
        step_updating_s_(updating_s_) {
    for (int s = 0; s < in.channels; ++s) updates_.emplace_back(in, step, PS, s);
    lanes_.reserve(size_t(2) * in.workers * in.channels);
    for (int w = 0; w < in.workers; ++w)
      for (int d = 0; d < 2; ++d)
        for (int s = 0; s < in.channels; ++s)
          lanes_.emplace_back(in, traits_[size_t(d) * in.channels + s], links_.flow(d, w, s), d, w, s);
    links_.before_move([this](Flow& flow) { lane_of(flow.key).catch_up(now_, poll_); });
  }

 private:
  friend class EventLoop<Periods>;

  // May a worker upload to its own node in the very instant in which its host has parsed? Ends of hosts, which come
  // last in an instant, are no events here, so that nobody would know which workers have uploaded when a run is cut.
  static bool hosts_upload_at_once(const Inputs& in) {
    if (in.local_bytes_per_s != infinity || std::ranges::find(in.resource, HOST) == in.resource.end()) return false;
    if (std::ranges::find(in.local, 1) == in.local.end()) return false;
    auto uploads = [&in](int32_t op) { return in.resource[op] == UPLINK; };
    for (int32_t op = 0; op < in.ops; ++op)
      if (in.resource[op] == WORKER && std::ranges::any_of(in.dependents(op), uploads))
        for (int row = 0; row < in.rows; ++row)
          if (in.durations[size_t(row) * in.ops + op] == 0) return true;
    return false;
  }

  enum class Phase { none, opening, running, closing };
  struct Worker {
    Phase phase = Phase::none;
    double begin_s = 0, closing_s = 0;
    uint64_t begun_rank = 0;     // the rank of ends that the beginning of downloads calls forth
    int lanes_left = 0;          // lanes with something to download; later, with something to upload
    Event end;                   // of all ops but the closing op, later of that op; known, still to come
    Event computed_at;           // the last end of computation
    std::vector<int32_t> roots;  // ops of computation that wait for nothing
    double computing_s = 0, step_computing_s = 0;  // in steps that ended, in this one
    double parsing_s = 0, step_parsing_s = 0;      // likewise, on the host
  };

  LinkLane& lane_at(int d, int w, int s) { return lanes_[(size_t(w) * 2 + d) * in_.channels + s]; }
  LinkLane& lane_of(uint64_t key) {
    return lane_at(key_resource(key) == UPLINK, key_worker(key), key_server(key));
  }

  void process(uint64_t key, bool from_queue) {
    if (from_queue)
      take_event(key);
    else
      alarm(lane_of(key));
  }
  void forget() {
    links_.forget(lanes_.size(), [this] { catch_up(lanes_, now_, poll_); });
  }
  void count_hidden_events() {}  // `used` counts them

  void take_event(uint64_t key) {
    int w = key_worker(key), resource = key_resource(key);
    Worker& worker = workers_[w];
    if (resource < 0) return begin_step(w);
    if (worker.phase == Phase::opening) return download(w);
    if (!worker.end.none() && worker.end.whole() == now_.event.whole()) return all_ended(w);
    if (resource == WORKER) return start_uploads(w);
    silent(lane_of(key));
  }

  void begin_step(int w) {
    Worker& worker = workers_[w];
    steps_.begin(w, now_.time());
    worker.begin_s = now_.time();
    worker.end = Event{};
    worker.roots.clear();
    for (int d = 0; d < 2; ++d)
      for (int s = 0; s < in_.channels; ++s) lane_at(d, w, s).begin_step();
    if (step_.opening < 0) return download(w);
    worker.phase = Phase::opening;
    worker.roots.push_back(step_.opening);
    queue_.push({now_.time() + steps_.duration(w, step_.opening, true), event_key(WORKER, w, 0)});
  }
  void download(int w) {
    Worker& worker = workers_[w];
    worker.phase = Phase::running;
    worker.begun_rank = now_.instant.greatest() + 1;
    starting_.clear();
    for (int32_t op : steps_.roots(w)) {
      if (in_.resource[op] == WORKER) {
        worker.roots.push_back(op);
        continue;
      }
      LinkLane& lane = lane_at(0, w, in_.server[op]);
      if (lane.flow->rest == 0) starting_.push_back(&lane);
      lane.add(op);
    }
    worker.lanes_left = static_cast<int>(starting_.size());
    for (LinkLane* lane : starting_) start(*lane);
  }

  void start(LinkLane& lane) {
    if (lane.local) {
      lane.send_locally(now_);
      return queue_.push(lane.local_end());
    }
    lane.begin(links_, now_, steps_.weight(lane.worker, lane.direction, lane.server));
  }
  // Something may have ended on this lane.
  void alarm(LinkLane& lane) {
    if (lane.advance(now_, poll_)) {
      lane.add_uploads(now_.time());
      links_.of(lane.direction).extend(*lane.flow);
      return;
    }
    lane.end(links_);
    if (lane.waits())
      queue_.push(next_upload(lane));
    else
      silent(lane);
  }
  // Nothing more comes on this lane before the next step, or the uploads of this one.
  void silent(const LinkLane& lane) {
    if (--workers_[lane.worker].lanes_left > 0) return;
    if (lane.direction == 0)
      compute(lane.worker);
    else
      update(lane.worker);
  }

  void compute(int w) {
    Worker& worker = workers_[w];
    run_computation(w);
    worker.computed_at = Event(compute_.ends_s().back(), event_key(WORKER, w, 0));
    worker.step_computing_s = compute_.busy_s(worker.begin_s, infinity);
    worker.step_parsing_s = host_.busy_s(worker.begin_s, infinity);
    std::span<const Processor::Unlocked> unlocked = compute_.unlocked();
    int32_t number = 0;
    for (size_t i = 0; i < unlocked.size();) {
      int32_t place = unlocked[i].place;
      together_.clear();
      for (; i < unlocked.size() && unlocked[i].place == place; ++i)
        if (in_.resource[unlocked[i].op] == UPLINK) together_.push_back(unlocked[i].op);
      if (together_.size() > 1) sort_by_order(together_, steps_.order(w));
      for (int32_t op : together_)
        lane_at(1, w, in_.server[op]).uploads.push_back({compute_.ends_s()[place], place, number++, op});
    }
    worker.lanes_left = 0;
    for (int s = 0; s < in_.channels; ++s)
      if (LinkLane& lane = lane_at(1, w, s); lane.waits()) {
        ++worker.lanes_left;
        if (lane.local) lane.upload_locally(now_);
        queue_.push(lane.local ? lane.local_end() : next_upload(lane));
      }
  }
  // Computes as far as the ends of the host's ops before `until` allow.
  void run_computation(int w, Event until = {}) {
    const Worker& worker = workers_[w];
    std::span<const Arrival> arrivals = arrived(w);
    if (host_.ops() > 0) {
      uint64_t key = event_key(HOST, w, 0);
      host_.run(steps_, w, worker.begin_s, key, 0, {}, arrivals);
      auto later = std::ranges::find_if(
          host_.ended(), [&](const Arrival& end) { return !(Event(end.time_s, key) < until); });
      heads_.assign({arrivals, std::span<const Arrival>(host_.ended().begin(), later)});
      merge(heads_, parsed_);
      arrivals = parsed_;
    }
    compute_.run(steps_, w, worker.begin_s, event_key(WORKER, w, 0), worker.begun_rank, worker.roots, arrivals);
  }
  // The downloads of a worker that have arrived, in order.
  std::span<const Arrival> arrived(int w) {
    if (in_.channels == 1) return lane_at(0, w, 0).arrived_by(now_);
    heads_.clear();
    for (int s = 0; s < in_.channels; ++s) heads_.push_back(lane_at(0, w, s).arrived_by(now_));
    merge(heads_, merged_);
    return merged_;
  }

  static Event next_upload(const LinkLane& lane) {
    return {lane.uploads[lane.added].ready_s, event_key(WORKER, lane.worker, 0)};
  }
  // One end of computation: lanes start in the order in which this end queues their uploads.
  void start_uploads(int w) {
    int32_t place = std::numeric_limits<int32_t>::max();
    starting_.clear();
    for (int s = 0; s < in_.channels; ++s) {
      LinkLane& lane = lane_at(1, w, s);
      if (lane.sending || !lane.waits() || lane.uploads[lane.added].ready_s > now_.time()) continue;
      if (lane.uploads[lane.added].place < place) place = lane.uploads[lane.added].place, starting_.clear();
      if (lane.uploads[lane.added].place == place) starting_.push_back(&lane);
    }
    std::sort(starting_.begin(), starting_.end(), [](const LinkLane* a, const LinkLane* b) {
      return a->uploads[a->added].number < b->uploads[b->added].number;
    });
    for (LinkLane* lane : starting_) {
      lane->add_uploads_of(place);
      start(*lane);
    }
  }

  // All uploads have arrived.
  void update(int w) {
    Worker& worker = workers_[w];
    Event end = worker.computed_at;
    for (int s = 0; s < in_.channels; ++s) {
      const LinkLane& lane = lane_at(1, w, s);
      if (lane.arrived.empty()) continue;
      end = std::max(end, Event(lane.arrived.back().time_s, lane.key));
      run_updates(w, s, lane.arrived);
      step_updating_s_[size_t(w) * in_.channels + s] = updates_[s].busy_s(worker.begin_s, infinity);
      if (updates_[s].ops() > 0) end = std::max(end, Event(updates_[s].ends_s().back(), event_key(PS, w, s)));
    }
    worker.end = end;
    if (end.whole() == now_.event.whole())
      all_ended(w);
    else
      queue_.push(end);
  }
  void run_updates(int w, int s, std::span<const Arrival> arrived) {
    updates_[s].run(steps_, w, workers_[w].begin_s, event_key(PS, w, s), 0, {}, arrived);
  }

  // All ops but the closing op have ended, or the closing op too.
  void all_ended(int w) {
    Worker& worker = workers_[w];
    if (step_.closing < 0 || worker.phase == Phase::closing) return end_of_step(w);
    worker.phase = Phase::closing;
    worker.closing_s = now_.time();
    worker.end = Event(now_.time() + steps_.duration(w, step_.closing, true), event_key(WORKER, w, 0));
    queue_.push(worker.end);
  }
  void end_of_step(int w) {
    Worker& worker = workers_[w];
    worker.computing_s += worker.step_computing_s;
    worker.parsing_s += worker.step_parsing_s;
    if (worker.phase == Phase::closing) ++events_, worker.computing_s += now_.time() - worker.closing_s;
    worker.phase = Phase::none;
    events_ += compute_.ops() + host_.ops();
    for (int s = 0; s < in_.channels; ++s) {
      updating_s_[size_t(w) * in_.channels + s] += step_updating_s_[size_t(w) * in_.channels + s];
      events_ += updates_[s].ops();
    }
    steps_.end(w, now_.time());
    step_ended_ = true;
    if (steps_.ended(w) < in_.steps) begin_step(w);
  }

  // What each lane has used so far, in bytes or seconds; counts events up to now.
  std::vector<double> used() {
    Event until = after({now_.time(), now_.instant.greatest()});
    std::vector<double> out;
    result_.events = events_;
    for (int w = 0; w < in_.workers; ++w) {
      for (int d = 0; d < 2; ++d) {
        for (int s = 0; s < in_.channels; ++s) out.push_back(sent_bytes(lane_at(d, w, s)));
        if (d == 0) out.push_back(workers_[w].computing_s + computing_s(w, until));
      }
      for (int s = 0; s < in_.channels; ++s)
        out.push_back(updating_s_[size_t(w) * in_.channels + s] + updating_s(w, s, until));
      out.push_back(workers_[w].parsing_s + parsing_s(w, until));
    }
    return out;
  }
  double sent_bytes(LinkLane& lane) {
    if (lane.sending) lane.catch_up(now_, poll_);
    result_.events += lane.chunks;
    double bytes = lane.sent_bytes + lane.count_local(now_, result_.events);
    return lane.sending ? bytes + lane.flow->delivered(now_.time()) : bytes;
  }
  double computing_s(int w, Event until) {
    const Worker& worker = workers_[w];
    if (worker.phase == Phase::none) return 0;
    run_computation(w, until);
    return count(compute_, worker.begin_s, event_key(WORKER, w, 0), until) +
           (worker.phase == Phase::closing ? now_.time() - worker.closing_s : 0);
  }
  double parsing_s(int w, Event until) {
    if (workers_[w].phase == Phase::none || host_.ops() == 0) return 0;
    run_computation(w, until);
    return count(host_, workers_[w].begin_s, event_key(HOST, w, 0), until);
  }
  double updating_s(int w, int s, Event until) {
    if (workers_[w].phase == Phase::none) return 0;
    run_updates(w, s, lane_at(1, w, s).arrived_by(now_));
    return count(updates_[s], workers_[w].begin_s, event_key(PS, w, s), until);
  }
  double count(const Processor& processor, double begin_s, uint64_t key, Event until) {
    for (double end_s : processor.ends_s()) result_.events += Event(end_s, key) < until;
    return processor.busy_s(begin_s, now_.time());
  }

  const Inputs& in_;
  const TrainingStep& step_;
  const Poll& poll_;
  Now now_;
  Links<Shares> links_;
  Steps steps_;
  Processor compute_, host_;
  std::vector<Processor> updates_;  // for each server
  std::vector<LinkTraits> traits_;
  std::vector<LinkLane> lanes_;
  std::vector<Worker> workers_;
  std::vector<double> updating_s_, step_updating_s_;  // workers x channels: in steps that ended, in this one
  Heap<Event> queue_;  // starts of uploads, ends of steps
  std::vector<LinkLane*> starting_;
  std::vector<int32_t> together_;
  std::vector<Arrival> merged_, parsed_;
  std::vector<std::span<const Arrival>> heads_;
  bool step_ended_ = false;
  int64_t events_ = 0;
  Result result_;
};

}  // namespace planner
