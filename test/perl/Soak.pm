
=head1 NAME

Soak - are these lines flat?

=head1 SYNOPSIS

	my $soak = Soak->new(worker_memory => [ 0.05, 512 ], entries => [ 0.2, 20 ]);
	...
	$soak->note(worker_memory => 2340, entries => 17);		# again and again
	...
	print $soak->report;
	is_deeply([ $soak->growing ], [], 'flat');

A line is flat if the median of its last third is not above that of its second third, but
for a tolerance, which is given as a part of it and an absolute number.  The first third is
for warming up.

Medians, because a line has spikes, for instance when all clients reconnect, and a leak has
none.  Thirds, because a leak of a constant rate makes the two medians differ by what it leaks
in a third of the time, however the line began; so the longer the run, the smaller a leak it
finds.  The tolerance is for the noise of short runs.

=cut

package Soak;

use strict;
use warnings;

use List::Util qw(max min);
use POSIX qw(floor);

my $width = 40;
my $least = 9;					# samples without which nothing can be said

=head1 METHODS

=over

=item Soak->new($name => [ $part, $number ], ...)

=item $soak->note($name => $value, ...)

A sample of some or all of the lines.  A value that is undef was not available.

=item $soak->growing

The names of the lines that are not flat, or have too few samples to tell.

=item $soak->report

A table, with a picture of each line.

=item Soak::is_flat(\@values, $part, $number)

=back

=cut

sub new
{
	my ($class, @lines) = @_;
	my %tolerance = @lines;
	return bless {
		names => [ grep { !ref } @lines ],
		tolerance => \%tolerance,
		values => { map { $_ => [] } keys %tolerance },
	}, $class;
}

sub note
{
	my ($self, %sample) = @_;
	foreach my $name (grep { defined $sample{$_} } keys %sample)
	{
		push @{ $self->{values}{$name} // die "no such line: $name" }, $sample{$name};
	}
	return;
}

sub growing
{
	my ($self) = @_;
	return grep { !is_flat($self->{values}{$_}, @{ $self->{tolerance}{$_} }) } @{ $self->{names} };
}

sub is_flat
{
	my ($values, $part, $number) = @_;
	return '' if @$values < $least;
	my (undef, $second, $last) = _medians($values);
	return $last <= $second * (1 + $part) + $number;
}

sub report
{
	my ($self) = @_;
	my $format = "%-24s %10s %10s %10s %10s  %-7s %s\n";
	my $report = sprintf $format, 'medians of the thirds:', 'first', 'second', 'last', 'allowed', '', '';
	foreach my $name (@{ $self->{names} })
	{
		my ($values, $tolerance) = ($self->{values}{$name}, $self->{tolerance}{$name});
		my @medians = @$values < $least ? (0, 0, 0) : _medians($values);
		$report .= sprintf $format, $name, @medians,
		  floor($medians[1] * (1 + $tolerance->[0]) + $tolerance->[1]),
		  is_flat($values, @$tolerance) ? 'flat' : 'GROWS', _picture($values);
	}
	return $report;
}

sub _medians
{
	my ($values) = @_;
	my $third = floor(@$values / 3);
	return map { _median(@$values[ $_->[0] .. $_->[1] ]) }
	  [ 0, $third - 1 ], [ $third, 2 * $third - 1 ], [ 2 * $third, $#$values ];
}

sub _median
{
	my @sorted = sort { $a <=> $b } @_;
	return $sorted[ $#sorted / 2 ];
}

# One character for several samples in turn, which shows the greatest of them.  All lines begin at
# 0.
sub _picture
{
	my ($values) = @_;
	my $top = max(1, @$values);
	my $columns = min($width, scalar @$values);
	my $picture = '';
	foreach my $i (0 .. $columns - 1)
	{
		my ($from, $to) = map { floor($_ * @$values / $columns) } $i, $i + 1;
		$picture .= chr(0x2581 + floor(7 * max(@$values[ $from .. $to - 1 ]) / $top));
	}
	utf8::encode($picture);
	return $picture;
}

1;
