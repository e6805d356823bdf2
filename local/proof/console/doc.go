// Package console holds the operators' pages of idem/console to what they promise, in a real
// Chromium: an operator settles a crashed refund, with the mouse and with the keyboard alone.
// The tests need Debian's package chromium. Without a browser they are skipped, and with
// IDEM_REQUIRE_BROWSER=1 they fail.
//
// Each test leaves pictures of its pages in a temporary folder and says where. The one of
// the README is renewed by
//
//	go test ./local/proof/console -run Refund -update
package console
