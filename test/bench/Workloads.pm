
=head1 NAME

Workloads - what is measured, by whom, and how fast zklock has to be

=cut

package Workloads;

use strict;
use warnings;

# In the order in which they are shown.
our @systems = qw(zklock advisory table redis zookeeper Curator kazoo);

our %name = (
	zklock => 'zklock',
	advisory => 'pg_advisory_lock',
	table => 'lock table',
	redis => 'Redis lock',
	zookeeper => 'raw ZooKeeper client',
	Curator => 'Curator 5.4',
	kazoo => 'kazoo',
	plain => 'without zklock');

# A workload is done by CLIENTS on each of SERVERS.  Floors are how many times as fast as
# another system zklock has to be, with one ZooKeeper and with three; 0: no floor.  "of"
# says what is compared: the rate of rounds, or a time.  What is only_long is left out of
# the short form.
our @all = (
	{ id => 'W0', title => 'what ZooKeeper can write: 64 raw clients on 1,000 paths', clients => 64,
		systems => ['zookeeper'], floors => {} },
	{ id => 'W1', title => 'one path, one client', clients => 1, systems => \@systems,
		floors => { advisory => [ 0.9, 0 ], Curator => [ 7, 10.5 ] } },
	{ id => 'W1x', title => 'the same to the end of the transaction, one statement', clients => 1,
		systems => [qw(zklock advisory redis)],
		floors => { advisory => [ 0.9, 0 ], redis => [ 1.3, 0 ] } },
	{ id => 'W2', title => '1,000 paths at random, 16 clients', clients => 16, systems => \@systems,
		floors => { advisory => [ 0.7, 0 ], Curator => [ 6, 9 ], redis => [ 0.8, 0 ] } },
	{ id => 'W2c', title => 'paths never seen before, 16 clients', clients => 16, systems => \@systems,
		floors => { Curator => [ 1, 1 ], zookeeper => [ 0.9, 0.9 ] }, fewer_requests_than => 'Curator' },
	(map { {
		id => "W3-$_", family => 'W3', title => "one hot path, $_ clients", clients => $_, is_contended => 1,
		systems => \@systems,
		floors => { advisory => [ 0.9, 0 ], Curator => $_ == 64 ? [ 5, 7.5 ] : [ 8, 12 ] } } } 2, 8, 32, 64),
	{ id => 'W4', title => 'one hot path, 3 servers x 8 clients', clients => 8, servers => 3, is_contended => 1,
		systems => [qw(zklock zookeeper Curator kazoo)],
		floors => { Curator => [ 8, 12 ] }, least_share => 0.5 },
	{ id => 'W5', title => 'read-write lock, 95 % reads, 32 clients', clients => 32, is_contended => 1,
		systems => [qw(zklock advisory Curator)],
		floors => { advisory => [ 0.7, 0 ], Curator => [ 7, 10.5 ] } },
	{ id => 'W6-1', family => 'W6', title => 'semaphore of 8, 32 clients on one server', clients => 32, is_contended => 1,
		systems => [qw(zklock Curator)], floors => { Curator => [ 10, 15 ] } },
	{ id => 'W6-3', family => 'W6', title => 'semaphore of 8, 3 servers x 11 clients', clients => 11, servers => 3,
		is_contended => 1, systems => [qw(zklock Curator)], floors => { Curator => [ 3, 4.5 ] } },
	(map { {
		id => "W7-$_", family => 'W7', title => "a try behind $_ foreign nodes", clients => 1, queue => $_,
		systems => [qw(zklock Curator)], floors => { Curator => $_ == 5000 ? [ 2, 2 ] : [ 0, 0 ] } } } 10, 100, 1000, 5000),
	(map { {
		id => "W7own-$_", family => 'W7', title => "handover from a server where $_ queue", crowd => $_, of => 'p50_us',
		systems => ['zklock'], floors => {} } } 10, 100, 1000),
	{ id => 'W8', title => 'handover between servers', systems => [qw(zklock Curator)], of => 'p50_us',
		floors => { Curator => [ 1, 1 ] } },
	{ id => 'W8linger', family => 'W8', title => 'taking a lock that lingers elsewhere', systems => ['zklock'],
		of => 'p50_us', floors => {} },
	{ id => 'W9', title => 'a transaction without locks: TPC-B', clients => 4,
		systems => [qw(zklock plain)], of => 'instructions', only_one => 1,
		floors => { plain => [ 0.99, 0 ] } },
	{ id => 'W10', title => '8,000 locks held in one session', clients => 1, systems => ['zklock'], floors => {} },
	{ id => 'W10pool', family => 'W10', title => '100,000 locks held in a pool of sessions', clients => 1, locks => 100_000,
		systems => ['zklock'], floors => {} },
	{ id => 'W11', title => 'a failing try against a lock held elsewhere', clients => 1,
		systems => [qw(zklock Curator)], floors => { Curator => [ 1, 1 ] } });

foreach my $w (@all)
{
	$w->{family} //= $w->{id};
	$w->{of} //= 'rate';
	$w->{servers} //= 1;
	$w->{only_long} = $w->{id} =~ /^(W3-(8|64)|W7-\d000|W7own-100+)$/;
}

our %by_id = map { $_->{id} => $_ } @all;

1;
