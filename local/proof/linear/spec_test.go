package linear

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// The outcome of a key is a register. It is empty, unknown, or has a value: the number of the execution that made it,
// or of the resolution.
const (
	empty   = 0
	unknown = -1
)

// what is an operation, by what its caller got.
type what string

const (
	ran       what = "ran"       // the handler ran, and its value was recorded
	uncertain what = "uncertain" // the handler ran and failed without a mark
	replayed  what = "replayed"  // the recorded value
	parked    what = "parked"    // the outcome is unknown
	nothing   what = "nothing"   // in flight, or no store
	lost      what = "lost"      // the process died, or the value waits to be written: anything may have come of it
	resolved  what = "resolved"  // from outside
)

// operation is one with its value, if it has one.
type operation struct {
	what  what
	value int
}

func (o operation) String() string { return fmt.Sprint(o.what, " ", o.value) }

// next are the values that the register may have after an operation; none if it cannot have come now.
func next(repeatable bool, now int, o operation) []int {
	open := now == empty || now == unknown && !repeatable
	switch o.what {
	case nothing:
		return []int{now}
	case ran: // late, it answers the open question
		if open {
			return []int{o.value}
		}
	case replayed:
		if now == o.value {
			return []int{now}
		}
	case uncertain:
		if repeatable && now == empty {
			return []int{empty}
		}
		if open {
			return []int{unknown}
		}
	case parked:
		if open && !repeatable {
			return []int{unknown}
		}
	case resolved:
		if now == unknown {
			return []int{o.value}
		}
	case lost:
		if !open {
			return []int{now}
		}
		if o.value == 0 { // the handler has not run
			if repeatable {
				return []int{now}
			}
			return []int{now, unknown}
		}
		if repeatable {
			return []int{now, o.value}
		}
		return []int{now, unknown, o.value}
	}
	return nil
}

func model(repeatable bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{empty} },
		Step: func(state, input, output interface{}) []interface{} {
			var states []interface{}
			for _, v := range next(repeatable, state.(int), output.(operation)) {
				states = append(states, v)
			}
			return states
		},
		Equal:             func(a, b interface{}) bool { return a == b },
		DescribeOperation: func(_, output interface{}) string { return output.(operation).String() },
		DescribeState:     func(state interface{}) string { return fmt.Sprint(state) },
	}
	return m.ToModel()
}
