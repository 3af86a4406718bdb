// The event loop: one event at a time, whatever happens at the event.
//
// `Run` says what happens: `process` an event, `forget` what is over between events, what lanes have `used` so far, and
// how many events `Run` has left out (`count_hidden_events`). `Run` has the queue of ends that are known for good, the
// links, whose next end changes with every flow that comes or goes, and the steps of all workers.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <utility>
#include <vector>

#include "events.hpp"
#include "inputs.hpp"

namespace planner {

template <class Run>
class EventLoop {
 public:
  Result run() {
    Run& self = static_cast<Run&>(*this);
    const Inputs& in = self.in_;
    for (int w = 0; w < in.workers; ++w) self.queue_.push({in.start_offsets_s[w], event_key(-1, w, 0)});
    std::vector<double> before(size_t(in.workers) * in.lanes(), 0.0);
    bool warm = in.warmup_steps == 0;
    for (;;) {
      if ((++self.now_.turn & poll_mask) == 0) self.poll_();
      Event event = self.queue_.empty() ? Event{} : self.queue_.top(), on_link = self.links_.next();
      bool from_queue = event < on_link;
      if (!from_queue) event = on_link;
      if (event.none()) throw std::logic_error("nothing can happen, yet workers have steps to do");
      if (event.time() > in.max_time_s) {
        self.now_.begin(Event(in.max_time_s, ~uint64_t{0}));
        self.result_.stopped = Stopped::time;
        break;
      }
      if (from_queue) self.queue_.take();
      self.now_.begin(event);
      self.process(event.key, from_queue);
      self.queue_.settle();
      self.links_.commit();
      if (std::exchange(self.step_ended_, false)) {
        if (!warm && self.steps_.all_warm()) {
          warm = true;
          self.result_.measured_from_s = self.now_.time();
          before = self.used();
        }
        if (self.steps_.enough()) break;
      }
      if (self.result_.events >= in.max_events) {
        self.result_.stopped = Stopped::events;
        break;
      }
      self.forget();
    }
    self.result_.end_s = self.now_.time();
    self.result_.used = self.used();
    self.count_hidden_events();
    for (size_t i = 0; i < before.size(); ++i) self.result_.used[i] -= before[i];
    self.steps_.move_into(self.result_);
    return std::move(self.result_);
  }
};

}  // namespace planner
