#!/usr/bin/perl
#
# Counts the requests to ZooKeeper of one acquisition and its release, of several kinds.
#
# Each step waits until all requests that it causes have been sent: a ticket that is owned for a while
# is listed and watched.  So the figures do not depend on how fast the machine is.  Heartbeats
# are not counted.  test/bench/requests calls this, and gives the file for the figures:
# standard output is a log while PostgreSQL's modules for tests are loaded.

use strict;
use warnings;

use IPC::Run;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(usleep);

use ZklockNode;
use ZooKeeper;

my $rounds = 4;					# each on paths of its own
open my $figures, '>', $ARGV[0] or die "$ARGV[0]: $!";

my $zk = ZooKeeper->new;
# A wait for longer than deadlock_timeout may be published, and then looked at again and again.
my %settings = ('zklock.session_timeout' => '30s', 'deadlock_timeout' => '1h');
my $a = ZklockNode->started('a', $zk, %settings, 'zklock.linger' => 0);
my $b = ZklockNode->started('b', $zk, %settings, 'zklock.linger' => '1h');
my ($on_a, $on_b, @readers) = map { $_->backend } $a, $b, $a, $b;

# All requests up to now.  Each worker sends what is due before it reads the queue.
sub look
{
	my $sent = 0;
	foreach (@readers)
	{
		$_->query(q{SELECT count(*) FROM zk_lock_queue('/nobody')});
		$sent += $_->query('SELECT requests FROM zk_status');
	}
	usleep(50_000);
	return $sent;
}

# What this returns, when it has not changed in five turns more.
sub steady
{
	my ($figure) = @_;
	my ($last, $same) = (undef, 0);
	foreach (1 .. 600)
	{
		my $now = $figure->();
		$same = defined $last && $now == $last ? $same + 1 : 0;
		return $now if $same == 5;
		$last = $now;
	}
	die 'there are requests all the time';
}

# What a look itself sends.
my $seen = look();
my $cost = steady(sub { my $before = $seen; $seen = look(); return $seen - $before });
my $looks = 0;
sub sent { return look() - $cost * $looks++; }

# Until both servers have sent nothing for longer than the time after which a ticket is watched.
my $requests = 0;
sub settle { $requests = steady(\&sent); return; }

# On the paths of all rounds, in one statement; and wait.
sub each_path
{
	my ($backend, $name, @calls) = @_;
	my $condition = join ' AND ', map { sprintf $_, "'/$name/' || i" } @calls;
	my $done = $backend->query("SELECT count(*) FROM generate_series(1, $rounds) AS i WHERE $condition");
	die "$condition: for $done of $rounds paths" unless $done == $rounds;
	settle();
	return;
}

sub acquire { my ($backend, $name) = @_; each_path($backend, $name, 'zk_lock_acquire(%s)'); return; }
sub release { my ($backend, $name) = @_; each_path($backend, $name, 'zk_lock_release(%s)'); return; }
sub acquire_and_release { acquire(@_); release(@_); return; }

# From one moment to the next, and for each of so many.
my $before;
sub begin { $before = $requests; return; }

sub report
{
	my ($what, $number) = @_;
	printf $figures "%-45s %8.2f requests\n", $what, ($requests - $before) / ($number // $rounds);
	return;
}

# --- the server owns the ticket -------------------------------------------------

my @use = map { ('zk_lock_acquire(%1$s)', 'zk_lock_release(%1$s)') } 1 .. 3;
my $use_kept = sub { each_path($on_b, 'kept', @use); };
$use_kept->();
begin();
$use_kept->();
report('a lock that the server keeps', 3 * $rounds);

# --- the ticket is new ----------------------------------------------------------

begin();
acquire_and_release($on_a, 'new');
report('a lock that no client has used');

begin();
acquire_and_release($on_a, 'new');
report('a lock that this server has used');

acquire_and_release($on_b, 'used');
begin();
acquire_and_release($on_a, 'used');
report('a lock that another server has used');

begin();
acquire_and_release($on_a, 'kept');
report('a lock that another server keeps');

# --- a job ----------------------------------------------------------------------

# The read of the record before the lock, the write that begins the run, and the one that ends
# it.  The first run of a job also makes the record.
sub run { my ($tick) = @_; each_path($on_a, 'job', "zk_run_once(%s, '$tick')"); release($on_a, 'job'); return; }
run('2024-05-05 02:00Z');
begin();
run('2024-05-05 03:00Z');
report('a run of a job');

begin();
each_path($on_a, 'job', q{NOT zk_run_once(%s, '2024-05-05 03:00Z')});
report('a tick of a job that is used up');

# --- another server holds it ----------------------------------------------------

# The holder has answered the first try once and for all.
my $try = sub { each_path($on_a, 'held', q{NOT zk_lock_acquire(%s, '0')}); };
acquire($on_b, 'held');
$try->();
begin();
$try->();
report('a try for a lock that another server holds');

# In the first turns, a server learns that the lock comes back, and has not seen the
# directory.
my $turns = 3;
my ($holder, $waiter) = ($on_a, $on_b);
$holder->query("SELECT zk_lock_acquire('/turns')");
foreach my $turn (1 .. 2 + $turns)
{
	begin() if $turn == 3;
	$waiter->send("SELECT zk_lock_acquire('/turns')");
	($waiter == $on_a ? $a : $b)->wait_for_ticket('/turns', 'queued');
	settle();
	$holder->query("SELECT zk_lock_release('/turns')");
	$waiter->answer;
	settle();
	($holder, $waiter) = ($waiter, $holder);
}
report('a lock that two servers take in turns', $turns);

$_->quit foreach $on_a, $on_b, @readers;
$_->stop foreach $a, $b;

# --- many clients ---------------------------------------------------------------

# What ZooKeeper counts of it while eight clients on each of three servers draw among 200 paths, the same in
# each run.  It depends a little on who meets whom, so compare several runs.
my @nodes = map { ZklockNode->started($_, $zk, 'zklock.session_timeout' => '30s') } qw(c d e);
my ($clients, $draws) = (8, 400);
my $script = "$PostgreSQL::Test::Utils::tmp_check/shared.sql";
append_to_file($script, q{\set path random(1, 200)} . "\nBEGIN;\nSELECT zk_xact_lock_acquire('/shared/' || :path);\nCOMMIT;\n");

sub draw
{
	my @draws = map { IPC::Run::start([ 'pgbench', '-n', '-M', 'prepared', '--random-seed=' . $_->port % 3, '-c', $clients, '-t', $draws,
				'-f', $script, '-h', $_->host, '-p', $_->port, 'postgres' ], '>', \my $out, '2>', \my $err) } @nodes;
	$_->finish or die 'pgbench failed' foreach @draws;
	return;
}

my %kinds = (requests => 'received', packets => 'sent');
sub counted
{
	my $mntr = $zk->cmd('mntr');
	return map { $_ => ($mntr =~ /^zk_packets_$kinds{$_}\t(\d+)/m or die $mntr) && $1 } keys %kinds;
}

draw();
my %first = counted();
draw();
my %second = counted();
printf $figures "%-45s %8.2f %s\n", 'a lock on one of 200 shared paths', ($second{$_} - $first{$_}) / (@nodes * $clients * $draws), $_
  foreach sort keys %kinds;

$_->stop foreach @nodes;
$zk->stop;
