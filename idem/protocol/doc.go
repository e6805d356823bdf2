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
// conditional on the claim's random owner. A lease bounds how long a claim is
// respected. When it lapses without an outcome, the next call takes a repeatable
// operation over and parks any other one as unknown; so is a repeatable one after as many
// unsettled attempts as its calls allow. An unknown record ends by the parked attempt's
// own late outcome, or by a resolution, which another one may replace while no attempt has
// run since. A parked attempt that still runs keeps renewing its lease, and is not
// resolved to released before that is over. A lapsed claim that the next call would park can be
// resolved without that.
//
// Open questions (unknown, pending, released with steps) and watched claims are due at some
// time, and a store that is an [AdminStore] lists them by it. A sweep looks at them then: it
// parks a lapsed claim, resolves what it has found out, and postpones the rest. A
// postponement changes neither state nor write id.
//
// A completion whose result cannot be stored in time is recorded without it. The
// same owner can add the result later, as long as no other write has followed.
//
// A recorded step changes no state, nor does a reference, which is what the provider calls
// the effect. They are recorded in in_progress, or late in unknown. The begin mark of an
// at-most-once step can make its claim a watched one. A repeatable operation with an
// interrupted at-most-once step is taken over like any other one; its handler then closes
// the step, or the record is parked.
//
// An attempt in atomic mode takes no claim: one write leads from absent, or from what
// it has seen of an expired, released or lapsed record, to completed or failed.
//
// An expired record counts as absent, whether or not the store has deleted it. Open
// questions and watched claims never expire. A record that has ended can be removed, and until
// it has expired it can be kept for longer.
//
// # The writes
//
// An attempt's writes are [Claim], [Withdrawal], [Extension], [StepWrite], [ReferenceWrite]
// and [Finish]. From outside come [Settlement], [Postponement], [Prolongation] and [Erasure],
// which may carry an [Audit]. Their Apply methods are the reference for every store: they return
// the record after the write, or the conflict. Every write has an id, which is the same in all its
// retries. By it a store tells a write whose reply was lost from one that did not happen.
package protocol
