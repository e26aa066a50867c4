
# The check of the layers finds planted mistakes, and names the arrow.

use strict;
use warnings;

use Test::More;

use FindBin;
use PostgreSQL::Test::Utils;

my $top = "$FindBin::RealBin/../..";
my $tree = PostgreSQL::Test::Utils::tempdir('layers');

# A copy of the sources and of the objects that were built from them.
sub plant
{
	my (%files) = @_;

	system_or_bail('rm', '-rf', "$tree/src");
	system_or_bail('cp', '-r', "$top/src", $tree);
	append_to_file("$tree/src/$_", $files{$_}) foreach grep { !/\.o$/ } keys %files;
	foreach my $object (grep { /\.o$/ } keys %files)
	{
		append_to_file("$tree/planted.c", $files{$object});
		system_or_bail('gcc', '-c', '-o', "$tree/src/$object", "$tree/planted.c");
		unlink "$tree/planted.c";
	}
	return qx('$top/test/check-layers' '$tree' 2>&1);
}

is(plant(), "check-layers: ok\n", 'what is in the tree');
is($?, 0, 'and its exit status');

my @mistakes = (
	[ 'an include against the folders',
		{ 'backend/lock/acquire.c' => qq{#include "worker/request/ticketfeed.h"\n} },
		'backend/lock must not use worker/request: backend/lock/acquire.c includes worker/request/ticketfeed.h' ],
	[ 'an include of the roof', { 'zklock.h' => "\n", 'shared/entry.c' => qq{#include "zklock.h"\n} },
		'shared must not use roof: shared/entry.c includes zklock.h' ],
	[ 'a call against the folders, without an include',
		{ 'shared/planted.o' => "void zkl_on_lost_tell(void); void zkl_planted(void) { zkl_on_lost_tell(); }\n" },
		'shared must not use backend/lock: shared/planted.c uses zkl_on_lost_tell of backend/lock/onlost.c' ],
	[ 'a circle of headers', { 'backend/lock/localclaim.h' => qq{#include "backend/lock/acquire.h"\n} },
		'in a circle: backend/lock/localclaim.h includes backend/lock/acquire.h' ],
	[ 'a circle of two modules whose files make none',
		{ 'shared/locktable.h' => qq{#include "shared/listing.h"\n},
			'shared/listing.c' => qq{#include "shared/locktable.h"\n} },
		'in a circle: shared/listing.c includes shared/locktable.h' ],
	[ 'a circle of calls within a folder',
		{ 'shared/one.o' => "void zkl_two(void); void zkl_one(void) { zkl_two(); }\n",
			'shared/two.o' => "void zkl_one(void); void zkl_two(void) { zkl_one(); }\n" },
		'in a circle: shared/one.c uses zkl_two of shared/two.c' ],
	[ 'an include against the process of a file in a capability\'s folder',
		{ 'jobs/jobruns.c' => qq{#include "worker/request/ticketfeed.h"\n} },
		'shared must not use worker/request: jobs/jobruns.c includes worker/request/ticketfeed.h' ],
	[ 'a file of a capability whose process is not known',
		{ 'jobs/planted.c' => qq{#include "settings.h"\n} },
		'jobs is not in the list of folders' ],
	[ 'one capability that knows another one', { 'jobs/jobruns.c' => qq{#include "deadlock/waits.h"\n} },
		'jobs and deadlock must not use each other: jobs/jobruns.c includes deadlock/waits.h' ],
	[ 'PostgreSQL in pure code of a capability', { 'deadlock/waitgraph.c' => qq{#include "postgres.h"\n} },
		'deadlock/waitgraph.c is pure, but includes "postgres.h"' ],
	[ 'PostgreSQL in pure code', { 'protocol/path.c' => qq{#include "postgres.h"\n} },
		'protocol/path.c is pure, but includes "postgres.h"' ],
	[ 'a name without its header', { 'backend/lock/wait.h' => "extern void zkl_sleep(void);\n" },
		'backend/lock/wait.h declares zkl_sleep, which should begin with zkl_wait' ],
	[ 'the client library in a backend', { 'backend/lock/wait.c' => "#include <zookeeper/zookeeper.h>\n" },
		'backend/lock/wait.c knows the client library: #include <zookeeper' ],
	[ 'a state that is changed elsewhere', { 'backend/lock/wait.c' => "entry->state = ZKL_ENTRY_NONE;\n" },
		'backend/lock/wait.c moves an entry from state to state: entry->state = ' ],
	[ 'an SQL function in lock/', { 'backend/lock/wait.c' => "PG_FUNCTION_INFO_V1(zklock_planted);\n" },
		'backend/lock/wait.c has an SQL function: PG_FUNCTION_INFO_V1' ],
	[ 'a field of an entry that one more file writes', { 'shared/grant.c' => "entry->described_at = 0;\n" },
		'29 fields of ZklEntry are written by more than one file, not 28: ' ],
	[ 'a long function', { 'shared/entry.c' => "\nvoid\nplanted(void)\n{\n" . "\t;\n" x 61 . "}\n" },
		'shared/entry.c: planted has 61 lines, more than 60' ]);

foreach my $mistake (@mistakes)
{
	my ($what, $files, $message) = @$mistake;
	my $output = plant(%$files);

	cmp_ok($?, '!=', 0, "$what: exit status");
	like($output, qr/^check-layers: \Q$message\E/m, "$what: the arrow");
}

done_testing();
