package large

import (
	"fmt"

	"github.com/anishathalye/porcupine"
)

// The outcome of a key is a register. It is empty, unknown, or has a value: the number of the run that made it.
const (
	empty   = 0
	unknown = -1
)

// what is an operation, by what its caller got.
type what string

const (
	ran      what = "ran"      // the handler ran, and its value was recorded
	replayed what = "replayed" // the recorded value
	parked   what = "parked"   // the outcome is unknown
	nothing  what = "nothing"  // in flight, accepted, or no store
	denied   what = "denied"   // the handler failed, or its commit did: its value is never recorded
	lost     what = "lost"     // the process died, or the value waits to be written: anything may have come of it
	resolved what = "resolved" // by an operator
	probed   what = "probed"   // the provider has answered a sweep or an operator, who may use that or not
)

// operation is one with its value, if it has one.
type operation struct {
	What  what
	Value int
	Why   string // the error
}

func (o operation) String() string { return fmt.Sprint(o.What, " ", o.Value, " ", o.Why) }

// open says that it may have its effect at any later time.
func (o operation) open() bool { return o.What == denied || o.What == lost || o.What == probed }

// next are the values that the register may have after an operation; none if it cannot have come now.
func next(parks bool, now int, o operation) []int {
	left := []int{now}
	if parks {
		left = append(left, unknown)
	}
	open := now == empty || now == unknown
	switch o.What {
	case nothing:
		return []int{now}
	case ran: // late, it answers the open question
		if open {
			return []int{o.Value}
		}
	case replayed:
		if now == o.Value {
			return []int{now}
		}
	case parked:
		if open && parks {
			return []int{unknown}
		}
	case resolved: // to a value or, if the provider knows of none, to run again
		if open {
			return []int{o.Value}
		}
	case denied:
		if !open {
			return []int{now}
		}
		return append(left, empty)
	case lost, probed:
		switch {
		case !open:
			return []int{now}
		case o.What == lost && o.Value == empty: // the handler has not run
			return left
		}
		return append(left, o.Value)
	}
	return nil
}

func model(parks bool) porcupine.Model {
	m := porcupine.NondeterministicModel{
		Init: func() []interface{} { return []interface{}{empty} },
		Step: func(state, input, output interface{}) []interface{} {
			var states []interface{}
			for _, v := range next(parks, state.(int), output.(operation)) {
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
