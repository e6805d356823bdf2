// Package storetest is the conformance suite for implementations of
// [protocol.Store]. A store that passes [Run] without a skipped case can carry the engine's
// promise:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Harness {
//			s := mystore.New()
//			return storetest.Harness{Store: s, Delete: s.Delete}
//		})
//	}
//
// Every write of a case is compared with the reference semantics, the Apply
// methods of package protocol: whether it lands, the conflicting record,
// and what a read gives afterwards. The subtests are grouped by what they show:
// claim, race, fencing, lost reply, write id, delayed, late outcome, expiry,
// step, settle, commit, copy, result, added result, unreadable, plain, watched,
// reference, questions, prolonged, scan, random.
//
// What the [Harness] above leaves out is skipped, and then not shown:
//
//	Damages                  a record that cannot be read is never taken for absent
//	Unit                     writes that commit with the outcome, or not at all
//	a [protocol.AdminStore]  sweeps, operators' resolutions and their audit
//	Scanner                  all records are listed, without their results
//
// WithoutSteps and a MaxResult leave out the cases that such a store refuses.
package storetest
