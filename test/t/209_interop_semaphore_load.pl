
# The semaphore under load, together with services on Curator, InterProcessSemaphoreV2 and
# InterProcessSemaphoreMutex.

use strict;
use warnings;

use History;
use InteropPeer;
use ZklockTest;

my $zk = ZooKeeper->new;
my $curator = InteropPeer->curator($zk, session_timeout => 8);
my %settings = ('zklock.tenure' => 0, 'zklock.linger' => 0, 'zklock.connection_timeout' => '1min');
my %node = map { $_ => ZklockNode->started($_, $zk, %settings) } 'a', 'b';

# How many znodes there are: "LEASES/LOCKS", for each lease one and for each client that waits for
# the inner mutex or has it.  zklock answers before its znodes are gone.
sub nodes { my ($path) = @_; return join '/', map { scalar @{ $zk->children("/zklock$path/$_") } } 'leases', 'locks'; }

sub wait_for_nodes
{
	my ($path, $expected, $what) = @_;
	my $is = '';
	eval { $zk->wait_until(sub { ($is = nodes($path)) eq $expected }, $what) };
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return is($is, $expected, "$what: znodes");
}

# --- load ---

my %hammers;

# Two backends of each server and these clients of Curator, each with its quantity.  A client of
# Curator with a lease in hand and a backend that waits for all leases often wait for each other,
# until Curator gives up and tries again; so the clients that want several leases do fewer rounds.
sub load
{
	my ($what, $path, $n, $rounds, $quantities, %foreign) = @_;
	my $history = History->new;
	my $is_mutex = $n == 1;
	my %kind = (a => 'zklock', b => 'zklock', c => 'Curator');

	foreach my $node (@node{qw(a a b b)})
	{
		$history->hammer_mix($node, $node->name . ++$hammers{ $node->name },
			sub {
				my $quantity = 1 + int rand $quantities;
				return ("SELECT zk_semaphore_acquire('$path', $n, NULL, $quantity)", "SELECT zk_semaphore_release('$path', $quantity)",
					$is_mutex ? 'x' : $quantity);
			},
			hold_us => $is_mutex ? 0 : 20_000);
	}
	foreach my $name (sort keys %foreign)
	{
		$history->hammer($curator->actor($name), $is_mutex ? 'semmutex' : "semaphore=$n", "/zklock$path",
			hold_us => $is_mutex ? 0 : 20_000, quantity => $foreign{$name});
	}

	# Until all leases were in use at one moment, too.
	$history->work_until(
		sub {
			return $history->each_has($n == 3 ? 3 : $rounds)
			  && $history->each_has($rounds, grep { $foreign{$_} == 1 } keys %foreign)
			  && $history->has_handovers(sub { $kind{ substr $_[0], 0, 1 } }, 'zklock', 'Curator')
			  && ($is_mutex || grep { /leases at a time/ } $history->problems(leases => $n - 1));
		},
		"load $what");
	my @problems = $history->problems(leases => $n);
	is(scalar(@problems), 0, "load $what: never more than there are") or diag join "\n", splice @problems, 0, 10;
	note "load $what: " . $history->summary;
	wait_for_nodes($path, '0/0', "load $what: nothing is left");
	$_->wait_until_clean($path) foreach values %node;
	return;
}

foreach my $is_default (0, 1)
{
	if ($is_default)
	{
		$_->set('zklock.tenure', '100ms') foreach values %node;
		$_->set('zklock.linger', '1s') foreach values %node;
	}
	my $how = $is_default ? 'with the defaults' : 'without tenure';
	load("of one, $how", "/load1$is_default", 1, 30, 1, map { $_ => 1 } 'c1.h1', 'c1.h2', 'c2.h1', 'c2.h2');
	load("of three, $how", "/load3$is_default", 3, 20, 3, 'c1.h1' => 1, 'c1.h2' => 2, 'c2.h1' => 1, 'c2.h2' => 1);
	load("of eight, $how", "/load8$is_default", 8, 20, 3, 'c1.h1' => 1, 'c1.h2' => 2, 'c2.h1' => 3, 'c2.h2' => 3);
}

# --- the end ---

foreach my $node (values %node)
{
	is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), '0', $node->name . ': no entry is left');
}
foreach my $node (values %node)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, $node->name . ': a quiet log');
}
is_deeply([ grep { m{-lease-|-lock-} } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
