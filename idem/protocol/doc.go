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
// A record is always in one of these states. [Next] has all the rules.
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
// conditional on the claim's random owner. When its lease is over without an outcome, the
// next call takes a repeatable operation over and parks any other one as unknown; so is a
// repeatable one after as many unsettled attempts as its calls allow. An unknown record ends by
// the parked attempt's own late outcome, or by a resolution, which another one may replace while
// no attempt has run since. To released it is resolved only once the lease is over.
//
// Open questions (unknown, pending, released with steps) and watched claims are due at some
// time, and a store that is an [AdminStore] lists them by it. They never expire. An expired record
// counts as absent, whether or not the store has deleted it.
//
// A completion whose result cannot be stored in time is recorded without it; the same owner can
// add the result while no other write has followed. Steps and references change no state. An
// attempt in atomic mode takes no claim: one write leads from absent, or from what it has seen of
// an expired, released or lapsed record, to completed or failed.
//
// # The writes
//
// An attempt's writes are [Claim], [Withdrawal], [Extension], [StepWrite], [ReferenceWrite]
// and [Finish]. From outside come [Settlement], [Postponement], [Prolongation] and [Erasure],
// which may carry an [Audit]. Their Apply methods are the reference for every store. Every write has
// an id, the same in all its retries, by which a store tells one whose reply was lost from one that
// did not happen.
package protocol
