
# Mutexes under load, together with services on Curator and kazoo; the semaphore, together with
# InterProcessSemaphoreV2 and InterProcessSemaphoreMutex; and services that are killed.

use strict;
use warnings;

use Contender;
use History;
use InteropPeer;
use ZklockTest;

my $zk = ZooKeeper->new;
my $curator = InteropPeer->curator($zk, session_timeout => 8);
my $kazoo = InteropPeer->kazoo($zk, session_timeout => 8);
my %settings = ('zklock.tenure' => 0, 'zklock.linger' => 0, 'zklock.connection_timeout' => '1min');
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);

sub zklock { my ($node) = @_; return Contender->zklock($node->backend, $node); }
sub curator { my ($actor) = @_; return Contender->foreign($curator->actor($actor), 'mutex'); }
sub kazoo { my ($actor, $kind) = @_; return Contender->foreign($kazoo->actor($actor), $kind); }

my ($a1, $b1) = map { zklock($_) } $node_a, $node_b;
my ($c1, $c2) = map { curator($_) } 'c1', 'c2';
my ($k1, $k2) = map { kazoo($_, 'mutex') } 'k1', 'k2';

# Queue, and wait until the wait has begun.
sub queue { my ($path, $contender) = @_; return $contender->queue($zk, $path); }

# zklock answers before the znode of a try, or of a release, is gone.
sub wait_for_znodes { my ($path, $n) = @_; return $zk->wait_for_children("/zklock$path", $n); }

# --- load ---

# The checks are worth nothing if the clocks differ.
foreach my $actor ($curator->actor('c1'), $kazoo->actor('k1'))
{
	my $before = History::clock();
	my $clock = $actor->clock;
	my $after = History::clock();
	ok($before <= $clock && $clock <= $after, $actor->name . ': the same clock')
	  or diag "$before $clock $after";
}

my %hammers;
my %kind = (a => 'zklock', b => 'zklock', c => 'Curator', k => 'kazoo');
sub kind_of { my ($who) = @_; return $kind{ substr $who, 0, 1 }; }

sub start_foreign
{
	my ($history, $path, %foreign) = @_;
	foreach my $name (sort keys %foreign)
	{
		my $peer = kind_of($name) eq 'kazoo' ? $kazoo : $curator;
		$history->hammer($peer->actor($name), $foreign{$name}, "/zklock$path");
	}
	return;
}

# Two backends of each server and these actors, until each has done its share and every
# kind has had the lock from every other kind.
sub load
{
	my ($what, $path, $rounds, %foreign) = @_;
	my $history = History->new;
	my %kinds = map { kind_of($_) => 1 } 'a', keys %foreign;

	foreach my $node ($node_a, $node_a, $node_b, $node_b)
	{
		$history->hammer_sql($node, $node->name . ++$hammers{ $node->name },
			"SELECT zk_lock_acquire('$path')", "SELECT zk_lock_release('$path')");
	}
	start_foreign($history, $path, %foreign);
	$history->work_until(
		sub { $history->each_has($rounds) && $history->has_handovers(\&kind_of, keys %kinds) },
		"load $what");

	my @problems = $history->problems;
	is(scalar(@problems), 0, "load $what: no two overlapped, and the counter is exact")
	  or diag join "\n", splice @problems, 0, 10;
	note "load $what: " . $history->summary;
	wait_for_znodes($path, 0);
	$_->wait_until_clean($path) foreach $node_a, $node_b;
	return;
}

my %all = map { $_ => 'mutex' } 'c1.h1', 'c1.h2', 'c2.h1', 'c2.h2', 'k1.h', 'k2.h';
load('without tenure', '/load1', 100, %all);
load('with extra_lock_patterns', '/load2', 50, 'k1.h' => 'patterns', 'k2.h' => 'patterns', 'k3.h' => 'patterns');
foreach my $node ($node_a, $node_b)
{
	$node->set('zklock.tenure', '100ms');
	$node->set('zklock.linger', '1s');
}
load('with the defaults', '/load3', 100, %all);

# The checker finds real overlaps: here are two clients that do not exclude each other.
my $history = History->new;
start_foreign($history, '/load4', 'c1.h1' => 'mutex', 'k1.h' => 'stock');
$history->work_until(sub { $history->most_at_a_time > 1 }, 'an overlap');
ok(scalar(grep { /^overlap/ } $history->problems), 'the checker finds an overlap of Curator and stock kazoo');

# --- the semaphore ---

foreach my $node ($node_a, $node_b)
{
	$node->set('zklock.tenure', '0');
	$node->set('zklock.linger', '0');
}

# Two backends of each server and these clients of Curator, each with its quantity.  A client of
# Curator with a lease in hand and a backend that waits for all leases often wait for each other,
# until Curator gives up and tries again; so the clients that want several leases do fewer rounds.
sub load_semaphore
{
	my ($what, $path, $n, $rounds, $quantities, %foreign) = @_;
	my $history = History->new;
	my $is_mutex = $n == 1;

	foreach my $node ($node_a, $node_a, $node_b, $node_b)
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
			  && $history->has_handovers(\&kind_of, 'zklock', 'Curator')
			  && ($is_mutex || grep { /leases at a time/ } $history->problems(leases => $n - 1));
		},
		"load $what");
	my @problems = $history->problems(leases => $n);
	is(scalar(@problems), 0, "load $what: never more than there are") or diag join "\n", splice @problems, 0, 10;
	note "load $what: " . $history->summary;
	$zk->wait_for_children("/zklock$path/$_", 0) foreach 'leases', 'locks';
	$_->wait_until_clean($path) foreach $node_a, $node_b;
	return;
}

foreach my $is_default (0, 1)
{
	if ($is_default)
	{
		$_->set('zklock.tenure', '100ms') foreach $node_a, $node_b;
		$_->set('zklock.linger', '1s') foreach $node_a, $node_b;
	}
	my $how = $is_default ? 'with the defaults' : 'without tenure';
	load_semaphore("of one, $how", "/load1$is_default", 1, 30, 1, map { $_ => 1 } 'c1.h1', 'c1.h2', 'c2.h1', 'c2.h2');
	load_semaphore("of three, $how", "/load3$is_default", 3, 20, 3, 'c1.h1' => 1, 'c1.h2' => 2, 'c2.h1' => 1, 'c2.h2' => 1);
	load_semaphore("of eight, $how", "/load8$is_default", 8, 20, 3, 'c1.h1' => 1, 'c1.h2' => 2, 'c2.h1' => 3, 'c2.h2' => 3);
}

# --- services that are killed ---

foreach my $node ($node_a, $node_b)
{
	$node->set('zklock.tenure', '0');
	$node->set('zklock.linger', '0');
}
foreach ([ 'kazoo', $kazoo, $k1, $k2, $c1 ], [ 'Curator', $curator, $c1, $c2, undef ])
{
	my ($who, $peer, $holder, $waiter, $survivor) = @$_;
	my $path = "/kill_$who";
	my @sessions = map { $_->party->session } $holder, $waiter;

	$holder->acquire($path);
	queue($path, $waiter);
	queue($path, $a1);
	queue($path, $survivor) if $survivor;
	queue($path, $b1);
	$peer->kill9;
	is($a1->answer, 't', "$who is killed, holding and waiting: zklock has it");
	is_deeply([ grep { $zk->has_session($_) } @sessions ], [], "$who is killed: when its sessions had expired");
	is($waiter->result->{errcode}, 'Died', "$who is killed: the waiter is told nothing");
	$node_a->wait_until_contended($path);
	$a1->release($path);
	if ($survivor)
	{
		is($survivor->answer, 't', "$who is killed: Curator is next");
		$survivor->release($path);
	}
	is($b1->answer, 't', "$who is killed: then the other server");
	$b1->release($path);
	wait_for_znodes($path, 0);
}

# --- the end ---

foreach my $node ($node_a, $node_b)
{
	$node->wait_until('SELECT count(*) = 0 FROM zk_locks');
	pass($node->name . ': no entry is left');
}
$_->party->quit foreach $a1, $b1;
foreach my $node ($node_a, $node_b)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, $node->name . ': a quiet log');
}
is_deeply([ grep { m{^/zklock/.*(lock|lease)-} } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
