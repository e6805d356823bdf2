// Package protocol is the library on one page: the states of a record, what leads
// from one to another, what each write makes of a record, and what a store must do.
// It has no clock, no goroutine and no network. Package idem runs it; a store
// keeps its records.
//
// To write a handler you need package idem alone. To write a [Store] you need this
// package, and package storetest, whose tests every store must pass.
//
// # The machine
//
// A record is always in one of these states. [Next] is the whole of the rules.
//
//	              claim                complete
//	(absent) ───────────▶ in_progress ───────────▶ completed ─┐
//	   ▲                   │  ▲   │ │                         │ retention
//	   │           release │  │   │ │ fail                    │ is over
//	   │                   ▼  │   │ └────────────▶ failed ────┤
//	   │             released ┘   │ park,                      │
//	   │              │  ▲ claim  │ lapse                      ▼
//	   │    uncertain │  │        ▼                        (expired)
//	   │    and not   └──┼────▶ unknown ──────▶ completed,    │
//	   │    repeatable   │        │   late      failed or     │
//	   │                 └────────┘   outcome,  released      │
//	   │                  resolve     resolve                 │
//	   └──────────────────────────────────────────────────────┘
//
// A claim is one conditional write, and every later write of the attempt is
// conditional on the claim's random owner. A lease bounds how long a claim is
// respected. When it lapses without an outcome, the next call takes a repeatable
// operation over and parks any other one as unknown. The parked attempt's own late
// outcome and a resolution lead out of unknown.
//
// A completion whose result cannot be stored in time is recorded without it. The
// result can be added later under the same owner, to that very write and to no
// other one.
//
// A recorded step changes no state. It is recorded in in_progress, or late in
// unknown. A repeatable operation with an interrupted at-most-once step is taken over
// like any other one; its handler then closes the step, or the record is parked.
//
// An attempt in atomic mode takes no claim: one write leads from absent, or from what
// it has seen of an expired, released or lapsed record, to completed or failed.
//
// An expired record counts as absent, whether or not the store has deleted it. Open
// questions (unknown, pending, released with steps) never expire.
//
// # The writes
//
// [Claim], [Withdrawal], [Extension], [StepWrite], [Finish] and [Settlement] are all
// the writes there are. Their Apply methods are the reference for every store: what
// the write makes of a record, or the conflict. Every write has an id, the same in
// all its retries, so that a write whose reply was lost can be told from one that
// did not happen.
package protocol
