
# The mutex under load, together with services on Curator and kazoo; and services that are killed.

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
	is($node->safe_psql('postgres', 'SELECT count(*) FROM zk_locks'), '0', $node->name . ': no entry is left');
}
$_->party->quit foreach $a1, $b1;
foreach my $node ($node_a, $node_b)
{
	$node->stop;
	unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, $node->name . ': a quiet log');
}
is_deeply([ grep { m{^/zklock/.*lock-} } @{ $zk->tree('/zklock') } ], [], 'nothing is left in the end');

done_testing();
