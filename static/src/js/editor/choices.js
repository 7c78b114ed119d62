// The levels of preemption, as the settings and single pools offer them.
export const PREEMPTION = [
  ["none", "No task is preempted"],
  ["reclaim", "Reservations reclaim what others borrowed"],
  ["priority", "And higher priority within a policy"],
  ["rank", "And better rank among over-quota work"],
];
