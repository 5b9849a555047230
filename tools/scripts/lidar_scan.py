#!/usr/bin/env python3
"""Draws a scan as a turning LiDAR sees a street: ground in rings, walls, boxes.

    lidar_scan.py OUTPUT.bin|OUTPUT.npy [--seed 1] [--beams 64] [--columns 2000] [--sweeps 1]

OUTPUT holds float32 points [n, 4]: x ahead, y to the left, z up, in metres from the sensor, and how bright; .bin is
KITTI's raw form. With several sweeps the sensor drives ahead by 0.7 m between them, and the points lie where they are
seen from the last place, as nuScenes accumulates them. The same arguments give the same bytes. Needs NumPy.
"""

import argparse

import numpy as np

SENSOR_HEIGHT = 1.73
STEP = 0.7
RANGE = 90.0


def street(random):
    """Boxes (n, 6): least and largest x, y, z above the ground. Walls and cars and poles are all boxes."""
    boxes = []
    for side in (-1, 1):
        at = -80.0
        while at < 90:  # houses in a row, with gaps
            length, away = random.uniform(8, 25), random.uniform(9, 16)
            y = side * away
            boxes.append([at, min(y, y + side * 8), 0, at + length, max(y, y + side * 8), random.uniform(4, 12)])
            at += length + random.uniform(0.5, 6)
    for _ in range(40):  # cars
        x, y = random.uniform(-60, 75), random.choice([-1, 1]) * random.uniform(2.5, 8)
        boxes.append([x, y - 0.9, 0, x + random.uniform(3.8, 5), y + 0.9, random.uniform(1.4, 2.0)])
    for _ in range(60):  # poles, trunks, people
        x, y, half = random.uniform(-60, 75), random.uniform(-25, 25), random.uniform(0.08, 0.4)
        if abs(y) > 2:
            boxes.append([x - half, y - half, 0, x + half, y + half, random.uniform(1.6, 6)])
    return np.array(boxes)


def cast(origin, directions, boxes):
    """Distance of the first hit of each ray, infinite where it meets nothing."""
    with np.errstate(divide="ignore", invalid="ignore"):
        nearest = np.where(directions[:, 2] < 0, -origin[2] / directions[:, 2], np.inf)
        inverse = 1 / directions
        for box in boxes:
            to = (box.reshape(2, 1, 3) - origin) * inverse
            enter, leave = np.min(to, axis=0).max(axis=1), np.max(to, axis=0).min(axis=1)
            hit = (enter > 0.5) & (enter < leave) & (enter < nearest)
            nearest = np.where(hit, enter, nearest)
    return nearest


def scan(seed, beams, columns, sweeps):
    random = np.random.default_rng(seed)
    boxes = street(random)
    up = np.radians(np.linspace(-24.8, 2.0, beams))
    around = np.radians(np.arange(columns) * 360 / columns)
    parts = []
    for sweep in range(sweeps):
        origin = np.array([-STEP * (sweeps - 1 - sweep), 0.0, SENSOR_HEIGHT])
        turned = (around[:, None] + random.uniform(0, 2 * np.pi / columns)).repeat(beams, axis=1)
        tilted = np.broadcast_to(up, turned.shape)
        directions = np.stack([np.cos(tilted) * np.cos(turned), np.cos(tilted) * np.sin(turned), np.sin(tilted)],
                              axis=-1).reshape(-1, 3)
        distance = cast(origin, directions, boxes)
        kept = (distance < RANGE) & (random.random(len(distance)) > 0.05)
        distance = distance[kept] + random.normal(0, 0.02, int(kept.sum()))
        points = origin + directions[kept] * distance[:, None]
        points[:, 2] -= SENSOR_HEIGHT
        bright = np.clip(random.normal(0.3, 0.1, len(points)) + 2 / (2 + distance), 0, 1)
        parts.append(np.column_stack([points, bright]).astype("<f4"))
    return np.concatenate(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--beams", type=int, default=64)
    parser.add_argument("--columns", type=int, default=2000)
    parser.add_argument("--sweeps", type=int, default=1)
    arguments = parser.parse_args()
    points = scan(arguments.seed, arguments.beams, arguments.columns, arguments.sweeps)
    if arguments.output.endswith(".npy"):
        np.save(arguments.output, points)
    else:
        points.tofile(arguments.output)
    print("%s: %d points" % (arguments.output, len(points)))


if __name__ == "__main__":
    main()
