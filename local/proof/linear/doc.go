// Package linear checks the promise as a whole: callers, resolvers, processes that die and a network that loses
// calls, on one table. The history of each key must be one that a single register could have, whose specification
// is in the package register. Porcupine finds the order of its operations, or shows that there is none.
package linear
